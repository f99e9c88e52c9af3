package rlc

import "strings"

// Plural is a number of things in words: "1 episode", "2 episodes", "5 losses",
// "1,200 policies". thing is an English noun with a regular plural, or several words
// that end in one.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	stem, end := thing, "s"
	for _, hiss := range []string{"s", "x", "z", "ch", "sh"} {
		if strings.HasSuffix(thing, hiss) {
			end = "es"
		}
	}
	if before, ok := strings.CutSuffix(thing, "y"); ok && before != "" && !strings.ContainsRune("aeiou", rune(before[len(before)-1])) {
		stem, end = before, "ies"
	}
	return Number(n) + " " + stem + end
}
