package rollout

import "strings"

// Line is a line of the difference between two texts. Kind is "-" for one that
// is gone, "+" for one that is new, " " for one beside them that stays, and "@"
// for lines left out between two places.
type Line struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// around is how many lines that stay are shown on either side of a difference.
const around = 3

// mostCells bounds the work of a comparison: lines of the one text times lines
// of the other, where they differ. Beyond it all of the one goes and all of the
// other comes.
const mostCells = 4_000_000

// Text says in which lines two texts differ; nil where in none.
func Text(before, after string) []Line {
	if before == after {
		return nil
	}
	old, now := lines(before), lines(after)
	head := 0
	for head < len(old) && head < len(now) && old[head] == now[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(now)-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
		tail++
	}
	var all []Line
	for _, text := range old[:head] {
		all = append(all, Line{" ", text})
	}
	all = append(all, between(old[head:len(old)-tail], now[head:len(now)-tail])...)
	for _, text := range old[len(old)-tail:] {
		all = append(all, Line{" ", text})
	}
	return nearby(all)
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// between keeps a longest run of lines that both have, in order.
func between(old, now []string) []Line {
	var out []Line
	if len(old)*len(now) > mostCells {
		for _, text := range old {
			out = append(out, Line{"-", text})
		}
		for _, text := range now {
			out = append(out, Line{"+", text})
		}
		return out
	}
	same := make([][]int32, len(old)+1) // [i][j]: how many lines old[i:] and now[j:] can share
	for i := range same {
		same[i] = make([]int32, len(now)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(now) - 1; j >= 0; j-- {
			if old[i] == now[j] {
				same[i][j] = same[i+1][j+1] + 1
			} else {
				same[i][j] = max(same[i+1][j], same[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case i < len(old) && j < len(now) && old[i] == now[j]:
			out = append(out, Line{" ", old[i]})
			i, j = i+1, j+1
		case j == len(now) || i < len(old) && same[i+1][j] >= same[i][j+1]:
			out = append(out, Line{"-", old[i]})
			i++
		default:
			out = append(out, Line{"+", now[j]})
			j++
		}
	}
	return out
}

// nearby leaves out the lines that stay and are not within three of one that
// does not.
func nearby(all []Line) []Line {
	keep := make([]bool, len(all))
	for i, l := range all {
		if l.Kind == " " {
			continue
		}
		for k := max(0, i-around); k <= min(len(all)-1, i+around); k++ {
			keep[k] = true
		}
	}
	var out []Line
	for i, l := range all {
		if keep[i] {
			out = append(out, l)
		} else if i > 0 && keep[i-1] {
			out = append(out, Line{Kind: "@"})
		}
	}
	if n := len(out); n > 0 && out[n-1].Kind == "@" {
		out = out[:n-1]
	}
	return out
}
