# test.sh runs the tests of slug.sh and counts the green ones.

green=0
total=0
check() {
	total=$((total + 1))
	got=$(sh slug.sh "$2")
	if [ "$got" = "$3" ]; then
		green=$((green + 1))
		echo "green  $1"
	else
		echo "red    $1: slug of '$2' is '$got', want '$3'"
	fi
}

check "two words" "Hello World" "hello-world"
check "a trailing space" "Hello World " "hello-world"
check "no words" "" ""

echo "$green of $total green"
[ "$green" = "$total" ]
