// Package spell finds the word that a misspelt one was probably meant to be.
package spell

// Nearest is the word among words that s was probably meant to be: within most
// edits, and fewer than either has letters; of equals one with the same first
// letter, which people seldom get wrong, then the first. "" where there is none, or
// where s is longer than a name.
func Nearest(s string, words []string, most int) string {
	const longest = 60
	best, at := "", most+1
	if len(s) > longest {
		return ""
	}
	for _, w := range words {
		n := distance(s, w)
		if n > most || n >= len(w) || n >= len(s) {
			continue
		}
		if n < at || n == at && w[0] == s[0] && best[0] != s[0] {
			best, at = w, n
		}
	}
	return best
}

// distance is the Levenshtein distance of two short words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
