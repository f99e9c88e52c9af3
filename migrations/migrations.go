// Package migrations is the schema as numbered, embedded SQL. A migration goes
// forward only and leaves the records readable for the version before.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
)

//go:embed *.sql
var files embed.FS

// Migration is one step of the schema: the SQL that leads from Version−1 to
// Version, run in one transaction.
type Migration struct {
	Version int
	Name    string // the file's name
	SQL     string
}

var fileName = regexp.MustCompile(`^(\d{4})_[a-z0-9_]+\.sql$`)

// All returns every migration in order. Versions start at 1 and have no holes;
// anything else is an error.
func All() ([]Migration, error) { return read(files) }

func read(dir fs.FS) ([]Migration, error) {
	names, err := fs.Glob(dir, "*.sql") // sorted
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	all := make([]Migration, 0, len(names))
	for i, name := range names {
		m := fileName.FindStringSubmatch(name)
		if m == nil {
			return nil, fmt.Errorf("migration %q: want a name like 0001_records.sql", name)
		}
		version, err := strconv.Atoi(m[1])
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %q: want version %04d here", name, i+1)
		}
		sql, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, fmt.Errorf("read migration %q: %w", name, err)
		}
		all = append(all, Migration{Version: version, Name: name, SQL: string(sql)})
	}
	return all, nil
}
