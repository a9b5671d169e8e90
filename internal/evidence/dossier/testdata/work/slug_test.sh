#!/bin/sh
echo 1..2
test "$(sh slug.sh 'A b')" = a-b && echo ok 1 - words || echo not ok 1 - words
test "$(sh slug.sh '')" = '' && echo ok 2 - empty || echo not ok 2 - empty
