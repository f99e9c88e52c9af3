package quotafile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

const (
	maxFiles = 100_000   // files of a repository
	maxBytes = 512 << 20 // bytes of a repository
)

// ReadDir reads a checkout of the config repository: the files of config.md 1
// and nothing else. A relative symlink that stays inside root is followed, as
// ConfigMap and git-sync mounts are made of them; one that leads out is an
// error, and so is a file that is no regular one. Of a file larger than its
// limit it keeps one byte more than that, so that Parse refuses it by name.
//
// Whoever reads again opens the root again: such mounts replace the folder
// that a root holds open.
func ReadDir(root *os.Root) (rlc.Files, error) { return read(root, false) }

// ReadCheckout is ReadDir for a checkout of git, where a symlink is what the server
// finds in its repository, too: none is followed, and NotPlain stands for what is no
// plain file, so that Parse refuses it by name beside all else.
func ReadCheckout(root *os.Root) (rlc.Files, error) { return read(root, true) }

func read(root *os.Root, checkout bool) (rlc.Files, error) {
	r := reader{root: root, checkout: checkout, files: rlc.Files{}}
	if err := r.common(); err != nil {
		return nil, err
	}
	services, err := r.list(servicesDir)
	if err != nil {
		return nil, err
	}
	for _, segment := range services {
		for _, name := range []string{policyName, quotasName} {
			if err := r.file(path.Join(servicesDir, segment, name)); err != nil {
				return nil, err
			}
		}
	}
	return r.files, nil
}

// reader reads files below a root within the limits.
type reader struct {
	root     *os.Root
	checkout bool
	files    rlc.Files
	bytes    int
}

// common reads what services share: defaults, profiles and contracts.
func (r *reader) common() error {
	if err := r.file(defaultsPath); err != nil {
		return err
	}
	for _, dir := range []string{profilesDir, contractsDir} {
		names, err := r.list(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.file(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// list names a folder's entries, sorted; none where there is no such folder.
func (r *reader) list(dir string) ([]string, error) {
	f, err := r.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("read %s: %w: more than %d entries", dir, rlc.ErrInvalid, maxFiles)
	}
	slices.Sort(names)
	return names, nil
}

// file reads one file if it is of those that are read and exists.
func (r *reader) file(name string) error {
	if !Reads(name) {
		return nil
	}
	if r.checkout && !r.plain(name) {
		r.files[name] = NotPlain()
		return nil
	}
	info, err := r.root.Stat(name) // follows symlinks, within the root
	switch {
	case errors.Is(err, fs.ErrNotExist) || isNotDir(err):
		if _, linked := r.root.Lstat(name); linked == nil {
			return fmt.Errorf("read %s: %w: the symlink leads nowhere", name, rlc.ErrInvalid)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read %s: %w", name, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("read %s: %w: not a regular file", name, rlc.ErrInvalid)
	}
	f, err := r.root.Open(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(SizeLimit(name))+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if r.bytes += len(data); r.bytes > maxBytes || len(r.files) >= maxFiles {
		return fmt.Errorf("read %s: %w: the repository has more than %d files or %d MiB", name, rlc.ErrInvalid, maxFiles, maxBytes>>20)
	}
	r.files[name] = data
	return nil
}

// plain reports that a file, where there is one, is a regular one in real folders. A
// file in a folder's place is not this file.
func (r *reader) plain(name string) bool {
	for i := range name {
		if name[i] != '/' {
			continue
		}
		info, err := r.root.Lstat(name[:i])
		if err != nil || info.Mode().IsRegular() {
			return true
		}
		if !info.IsDir() {
			return false
		}
	}
	info, err := r.root.Lstat(name)
	return err != nil || info.Mode().IsRegular()
}

// isNotDir reports that a file stands where a folder was looked for, such as a
// README in services/.
func isNotDir(err error) bool {
	return err != nil && strings.Contains(err.Error(), "not a directory")
}

// Validate checks a repository, a service's folder or a single file, and
// returns everything found with paths that start with the one given. The error
// says that nothing could be checked. A folder or file inside a repository is
// checked against its defaults, profiles and contracts; one that stands
// elsewhere is checked for itself.
func Validate(name string, check rlc.CheckPolicy) ([]rlc.Problem, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return validateFile(name, check)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	exists := func(entry string) bool { _, err := root.Stat(entry); return err == nil }
	switch {
	case exists(servicesDir) || exists(defaultsPath) || exists(profilesDir) || exists(contractsDir):
		files, err := ReadCheckout(root)
		if err != nil {
			return nil, err
		}
		problems, err := misnamed(root)
		if err != nil {
			return nil, err
		}
		return under(name, "", append(problems, Parse(files, check).Problems...)), nil
	case exists(policyName) || exists(quotasName):
		return validateFolder(name, root, check)
	}
	return nil, fmt.Errorf("%s: %w: neither a config repository (services/, defaults.yaml) nor a service's folder (policy.yaml)", name, rlc.ErrInvalid)
}

// misnamed finds files that nobody reads and somebody surely meant: .yml for
// .yaml. A policy that silently does not count is the worst answer.
func misnamed(root *os.Root) ([]rlc.Problem, error) {
	var problems []rlc.Problem
	for _, pattern := range []string{"*.yml", profilesDir + "/*.yml", contractsDir + "/*.yml", servicesDir + "/*/*.yml"} {
		found, err := fs.Glob(root.FS(), pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			right := strings.TrimSuffix(name, ".yml") + ".yaml"
			if kindOf(right) != "" {
				problems = append(problems, rlc.Problem{File: name, Line: 1, Column: 1, Message: "nobody reads this file", Hint: "rename it to " + path.Base(right)})
			}
		}
	}
	return problems, nil
}

// validateFolder checks a service's folder.
func validateFolder(name string, root *os.Root, check rlc.CheckPolicy) ([]rlc.Problem, error) {
	r := reader{root: root, files: rlc.Files{}}
	folder := map[string][]byte{}
	for _, file := range []string{policyName, quotasName} {
		data, err := readOne(root, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		folder[file] = data
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	around, err := surroundings(abs)
	if err != nil {
		return nil, err
	}
	segment := filepath.Base(abs)
	prefix := path.Join(servicesDir, segment)
	for file, data := range folder {
		r.files[path.Join(prefix, file)] = data
	}
	return under(name, prefix, inSurroundings(r.files, around, check)), nil
}

// validateFile checks one file by what it says it is.
func validateFile(name string, check rlc.CheckPolicy) ([]rlc.Problem, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	dir, base := filepath.Split(abs)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	data, err := readOne(root, base)
	if err != nil {
		return nil, err
	}
	var at string // where the file would stand in a repository
	parent := filepath.Base(filepath.Clean(dir))
	switch kind := declaredKind(data); {
	case kind == kindDefaults || base == defaultsPath:
		at = defaultsPath
	case kind == kindProfile:
		at = path.Join(profilesDir, base)
	case kind == kindContract:
		at = path.Join(contractsDir, base)
	case kind == kindQuotas || base == quotasName:
		at = path.Join(servicesDir, parent, quotasName)
	default:
		at = path.Join(servicesDir, parent, policyName)
	}
	if kindOf(at) == "" { // a folder or file name that a repository would not read
		at = path.Join(path.Dir(path.Dir(at)), "file", path.Base(at))
		if kindOf(at) == "" {
			return nil, fmt.Errorf("%s: %w: the name of a config file ends in .yaml", name, rlc.ErrInvalid)
		}
	}
	var around rlc.Files
	if path.Dir(at) == parent { // a profile or contract where a repository keeps it
		around = rlc.Files{}
	}
	if path.Dir(path.Dir(at)) == servicesDir {
		if around, err = surroundings(filepath.Clean(dir)); err != nil {
			return nil, err
		}
	}
	problems := inSurroundings(rlc.Files{at: data}, around, check)
	for i := range problems {
		problems[i].File = name
	}
	return slices.DeleteFunc(problems, func(p rlc.Problem) bool { return p.Warning && p.Message == quotasAlone }), nil
}

// surroundings reads the defaults, profiles and contracts of the repository
// that a service's folder belongs to; nil where it stands elsewhere.
func surroundings(folder string) (rlc.Files, error) {
	if filepath.Base(filepath.Dir(folder)) != servicesDir {
		return nil, nil
	}
	root, err := os.OpenRoot(filepath.Dir(filepath.Dir(folder)))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	r := reader{root: root, files: rlc.Files{}}
	if err := r.common(); err != nil {
		return nil, err
	}
	return r.files, nil
}

// inSurroundings parses files together with those around them and returns what
// was found in the files themselves. Nil surroundings mean that folder, file
// name and references cannot be held against a repository.
func inSurroundings(files, around rlc.Files, check rlc.CheckPolicy) []rlc.Problem {
	p := newParser(check)
	p.folders, p.alone = around != nil, around == nil
	all := rlc.Files{}
	for name, data := range around {
		all[name] = data
	}
	for name, data := range files {
		all[name] = data
	}
	p.parse(all)
	return slices.DeleteFunc(p.config.Problems, func(found rlc.Problem) bool {
		_, own := files[found.File]
		return !own
	})
}

// readOne reads a file of a folder that need not be a repository.
func readOne(root *os.Root, name string) ([]byte, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: %w: not a regular file", name, rlc.ErrInvalid)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxQuotasFile+1))
}

// under puts the path that the user gave before the files of a repository.
func under(name, prefix string, problems []rlc.Problem) []rlc.Problem {
	for i := range problems {
		rel := strings.TrimPrefix(strings.TrimPrefix(problems[i].File, prefix), "/")
		problems[i].File = filepath.Join(name, filepath.FromSlash(rel))
	}
	return problems
}

// declaredKind is what a file says after "kind:", found without parsing it.
func declaredKind(data []byte) string {
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "kind:"); ok {
			rest, _, _ = strings.Cut(rest, "#")
			return strings.Trim(strings.TrimSpace(rest), `"'`)
		}
	}
	return ""
}
