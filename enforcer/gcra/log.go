package gcra

// logEntries bounds the memory of a sliding log: up to so many requests in a
// window each has its own entry and the log is exact; above, times are rounded
// up to a 1,024th of the window, so that a request may count that much too
// long. An entry is 16 bytes, and a log holds at most logEntries + 1 (and room
// for as many again while it grows): at most 33 kB a counter.
const logEntries = 1024

// takeLog is Take for a sliding log.
func (l *Limit) takeLog(kept *State, now, cost int64) Verdict {
	// What slid out is forgotten by the next charge, whose time is kept: a
	// request that comes a little late would not find it otherwise.
	s := *kept
	if l.logAt(&s, now); s.At < kept.At {
		*kept = s // the clock was set back: to be remembered even by a refusal
	}
	cost, peek := looked(cost)
	free := max(l.burst-s.Debt, 0)
	switch {
	case cost > l.burst/micro:
		return Verdict{Remaining: free / micro, Wait: Forever}
	case cost*micro > free:
		return Verdict{Remaining: free / micro, Wait: duration(l.expires(&s, cost*micro+s.Debt-l.burst)-now, 0)}
	case peek:
		return Verdict{OK: true, Remaining: free / micro}
	}
	grain := l.Grain()
	at := now
	if grain > 1 {
		at = gridEnd(now-1, grain)
	}
	if at > s.At || s.Prev == 0 {
		if s.Prev > 0 {
			s.Log = append(s.Log, Entry{s.At, s.Prev})
		}
		s.At, s.Prev = max(at, s.At), 0
	}
	s.Prev += cost * micro
	s.Debt += cost * micro
	s.End = s.At + l.length
	*kept = s
	return Verdict{OK: true, Remaining: (free - cost*micro) / micro}
}

// logAt is the log s at now: what has slid out of the window is gone. At stays
// the time of the newest entry, so that time never runs back before it.
func (l *Limit) logAt(s *State, now int64) {
	if s.End == 0 || len(s.Log) == 0 && s.Prev != s.Debt {
		// Another algorithm's: its debt counts as taken when it was last touched.
		s.Debt = max(s.Debt, 0)
		s.Prev, s.Log = s.Debt, nil
	}
	if now < s.At && l.farAhead(s.At-now) {
		// The clock was set back: the debt goes on from now as one entry.
		s.At, s.Prev, s.Log = now, s.Debt, nil
	}
	s.End = s.At + l.length
	if s.End <= now || s.Debt == 0 {
		*s = State{At: s.At, End: s.End}
		return
	}
	gone := 0
	for gone < len(s.Log) && s.Log[gone].At <= now-l.length {
		s.Debt -= s.Log[gone].Cost
		gone++
	}
	s.Log = s.Log[gone:]
}

// expires is when at least short micro-tokens of the log will have slid out.
func (l *Limit) expires(s *State, short int64) int64 {
	for _, e := range s.Log {
		if short -= e.Cost; short <= 0 {
			return e.At + l.length
		}
	}
	return s.At + l.length
}
