package inventory

import "strings"

// closest is the word that was most likely meant, empty where none is like it.
func closest(word string, words []string) string {
	// A word this much longer than any of ours was meant for something else.
	const most = 64
	if len(word) > most {
		return ""
	}
	word = strings.ReplaceAll(strings.ToLower(word), "_", "-")
	best, least := "", 1+max(1, len(word)/3)
	for _, w := range words {
		if d := distance(word, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out, changed or exchanged with
// their neighbour to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
