package ui

// Audit is /audit.
type Audit struct {
	Verdict                          []Part
	Actor, Action, Text, From, Until string // the filter
	Actions                          []Choice
	Rows                             []AuditRow
	Pager                            Pager
	Empty                            *Empty
}

// AuditRow is one act.
type AuditRow struct {
	At                     Time
	Actor                  Link
	Action, Object, Detail string
}
