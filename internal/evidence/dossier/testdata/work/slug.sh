#!/bin/sh
# Turns a title into a slug.
title=$1
echo "$title" |
  tr 'A-Z' 'a-z' |
  tr ' ' '-'
