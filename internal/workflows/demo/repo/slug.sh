# slug.sh TITLE prints the title's words in lower case, joined by dashes.

printf '%s' "$1" | tr 'A-Z ' 'a-z\n' | while read -r word; do
	printf '%s-' "$word"
done | sed 's/-$//'
