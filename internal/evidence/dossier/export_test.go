package dossier

// Fold folds the steps of facts.
func Fold(f *Facts) []Block { return f.fold() }
