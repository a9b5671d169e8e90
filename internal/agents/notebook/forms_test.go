package notebook

import (
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
)

// TestOtherForms: a word that no note has in this form finds the notes that have it in
// another one, and no words of other meanings.
func TestOtherForms(t *testing.T) {
	t.Parallel()
	m := New(nil)
	notes := map[string]string{
		"german":  "Die Rechnungsadressen stehen im Archiv",
		"russian": "Ключи лежат в зелёной коробке на полке",
		"polish":  "Zapasowe serwery stoją w piwnicy",
		"spanish": "Las contraseñas cambian cada trimestre",
		"french":  "Les sauvegardes quotidiennes sont chiffrées",
		"finnish": "Palvelimet käynnistetään uudelleen sunnuntaisin",
		"turkish": "Toplantılar pazartesi günleri yapılır",
		"english": "We cooperate with the harbour office",
	}
	for name, text := range notes {
		must.Do(t, m.Write(t.Context(), "memory://user/"+name, text, memory.Origin{}))
	}
	for query, want := range map[string]string{
		"Rechnungsadresse": "german", "зеленая коробка": "russian", "serwer": "polish", "contraseña": "spanish",
		"sauvegarde quotidienne": "french", "palvelin": "finnish", "toplantı": "turkish",
		"copper": "", "harbinger": "", "office harbours": "english", "пол": "",
	} {
		hits := must.Get(m.Find(t.Context(), memory.Query{Text: query, Limit: 3}))(t)
		got := ""
		if len(hits) > 0 {
			got = hits[0].URI[len("memory://user/"):]
		}
		if got != want || len(hits) > 1 {
			t.Errorf("%q finds %q and %d in all, want %q alone", query, got, len(hits), want)
		}
	}
}
