package ui

// Where the two forms of an import are sent: to look at a file, and to commit it.
const (
	ImportPreview = "/import"
	ImportCommit  = "/import/commit"
)

// Import is the page /import.
type Import struct {
	Most     string // kibibytes that a file may have
	Text     string // as pasted
	Asked    bool   // a file was pasted: the rest says what became of it
	Verdict  []Part
	Problems []string
	Service  string // "" where the file has errors
	There    Link   // the service that has a policy already; the zero value: none
	Buckets  Grid
	Losses   Grid
	Policy   string
	Path     string
	CanAct   bool
	SignIn   string
}

// Export is the page /services/{service}/export.
type Export struct {
	Head                       Head
	Kinds                      []Choice
	Kind                       string
	WithHeaders, WithInstances bool // the kind has these options
	Headers, Instances         string
	Verdict                    []Part
	Losses                     Grid
	Pager                      Pager
	Text                       string
	Download                   string
	Command                    string
	Empty                      *Empty // where there is nothing to export
}

// Policy is the page /services/{service}/policy.
type Policy struct {
	Head       Head
	Path       string
	Commit     string
	At         Time
	Verdict    []Part
	Lines      []DiffLine // numbered; of kind del what is wrong in the line above
	Elsewhere  []string   // problems of other files
	Empty      *Empty
	Quotas     string // quotas.yaml; "" for none
	QuotasPath string
	Plan       string // the command that plans an edit
	Command    string
	JSON       string
}
