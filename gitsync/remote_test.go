package gitsync_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

// The names of these two tests say to newWorld how rlc reaches its repository.
const (
	overHTTPS = "TestEverythingOverHTTPS"
	overSSH   = "TestEverythingOverSSH"
)

// behaviour is what holds for a repository however it is reached. Each of these
// tests also stands alone, for a repository by its path.
var behaviour = []struct {
	name string
	test func(*testing.T)
}{
	{"one valid commit", TestPublishPutsOneValidCommitOnTheBaseTip},
	{"publish twice", TestPublishTwiceIsPublishOnce},
	{"rebuild on a moved base", TestANewRunRebuildsTheReviewOnTheMovedBase},
	{"empty difference", TestAnEmptyDifferenceClosesTheReview},
	{"same quotas", TestTheSameQuotasMakeNoCommit},
	{"hands off", TestAPersonsCommitOnTheReviewMeansHandsOff},
	{"amended", TestAnAmendedReviewIsAPersons},
	{"edited line", TestAPersonsEditOfALineSurvivesTheNextProposal},
	{"edits elsewhere", TestEditsElsewhereSurviveAnOpenReview},
	{"changed line", TestALineThatChangedSinceTheRunIsKept},
	{"invalid bytes", TestBytesThatDoNotValidateAreNeverCommitted},
	{"broken file", TestABrokenFileOnTheBaseBranchIsNamedAndKept},
	{"service left", TestAServiceThatLeftIsSuperseded},
	{"team: one branch", TestATeamsProposalsAreOneCommitOnOneBranch},
	{"team: one of them", TestOneOfATeamsProposalsIsAcceptedOrRejectedAlone},
	{"team: deleted", TestADeletedTeamsBranchRejectsAllOnIt},
	{"team: hands off", TestATeamsBranchWithAPersonsCommitIsLeftAlone},
	{"hook", TestAHookThatRefusesStopsThePublishAndIsQuoted},
	{"fenced", TestAStaleLeaderIsFenced},
	{"accept", TestAcceptPutsTheReviewOnTheBaseBranchInAPersonsName},
	{"accept what was seen", TestAcceptRefusesWhatWasNotLookedAt},
	{"accept a conflict", TestAcceptRefusesALineThatBothChanged},
	{"accept a person's", TestAcceptOfAReviewWithAPersonsCommitMergesIt},
	{"reject", TestRejectDeletesTheBranchOnlyWhenItIsTheOneSeen},
	{"settle", TestSettleFindsWhatPeopleDid},
	{"squash", TestASquashedReviewStaysKnownAsRLCs},
	{"superseded", TestSettleSaysSupersededForAnotherRunsBranch},
	{"edit", TestEditCommitsInAPersonsName},
	{"version", TestTheVersionCountsFirstParentCommits},
	{"at", TestAtShowsTheBaseBranchAsItWas},
	{"rewritten", TestRewrittenHistoryIsSeen},
	{"changed", TestChangedNamesTheServicesWhosePolicyChanged},
	{"log and show", TestLogAndShowTellAServicesHistory},
	{"odd things", TestOddThingsInTheTreeAreIgnored},
	{"hostile names", TestHostileNamesInTheTreeAreRefused},
	{"race on main", TestNothingIsLostWhilePeoplePush},
	{"race on the branch", TestAPersonsCommitOnTheBranchIsNeverLostToARebuild},
	{"second rlc", TestASecondRlcOnTheRepositoryIsRefused},
	{"gc", TestGcUnderARunningRlcIsHarmless},
}

func TestEverythingOverHTTPS(t *testing.T) {
	for _, b := range behaviour {
		t.Run(b.name, b.test)
	}
}

// Beyond the transport ssh differs in nothing: what it is asked to carry is one
// of each kind of act, and the races.
func TestEverythingOverSSH(t *testing.T) {
	carried := []string{"publish twice", "hands off", "hook", "accept", "accept a person's", "reject", "squash", "edit", "rewritten", "race on main", "race on the branch", "second rlc"}
	for _, b := range behaviour {
		if slices.Contains(carried, b.name) {
			t.Run(b.name, b.test)
		}
	}
}

// newFarWorld is a world that rlc reaches over https, and the server between.
func newFarWorld(t *testing.T) (*world, *webServer) {
	t.Helper()
	w := newWorld(t)
	w.Close()
	s := newWebServer(t, w.path)
	w.remote = s.config(t)
	w.Repo = w.open(gitsync.Config{})
	return w, s
}

func once(f func()) func() {
	var o sync.Once
	return func() { o.Do(f) }
}

func isPush(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/git-receive-pack") }

// D11. The other host is never asked, so it learns no token.
func TestARedirectElsewhereIsRefusedWithoutCredentials(t *testing.T) {
	t.Parallel()
	w, s := newFarWorld(t)
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	for name, target := range map[string]string{
		"another host": other.URL + "/config.git/info/refs?service=git-upload-pack",
		"no refs":      s.URL + "/elsewhere",
		"a file":       "file:///etc/passwd",
	} {
		s.answer(func(r *http.Request, _ http.HandlerFunc, rw http.ResponseWriter) {
			http.Redirect(rw, r, target, http.StatusFound)
		})
		_, err := gitsync.Open(t.Context(), fresh(t, w.remote))
		if !errors.Is(err, rlc.ErrRefused) || !strings.Contains(err.Error(), "redirects elsewhere") || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v, want ErrRefused that says so", name, err)
		}
	}
	if asked.Load() > 0 {
		t.Error("the other host was asked")
	}
	// Within the host it is followed, for the question only.
	s.answer(func(r *http.Request, next http.HandlerFunc, rw http.ResponseWriter) {
		if strings.HasPrefix(r.URL.Path, "/old/") {
			http.Redirect(rw, r, strings.TrimPrefix(r.URL.Path, "/old")+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
			return
		}
		next(rw, r)
	})
	moved := fresh(t, w.remote)
	moved.URL = strings.Replace(moved.URL, "/config.git", "/old/config.git", 1)
	r, err := gitsync.Open(t.Context(), moved)
	if err != nil {
		t.Fatalf("a redirect within the host: %v", err)
	}
	r.Close()
}

// fresh is the same remote with a mirror of its own.
func fresh(t *testing.T, c gitsync.Config) gitsync.Config {
	c.Dir, c.Log = filepath.Join(t.TempDir(), "mirror"), slog.New(slog.DiscardHandler)
	return c
}

// D7: the state is to be seen, the token is not, and a new token ends the wait.
func TestARefusedTokenIsToldWithoutTheToken(t *testing.T) {
	t.Parallel()
	w, s := newFarWorld(t)
	s.mu.Lock()
	s.token = "next-" + token
	s.mu.Unlock()
	_, _, err := w.Head(t.Context())
	if !errors.Is(err, rlc.ErrRefused) || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "canary") {
		t.Errorf("head: %v, want ErrRefused with the status and no token", err)
	}
	asked := s.asks.Load()
	for range 20 {
		if _, err := w.Publish(t.Context(), proposal("checkout", "cron-1", set("checkout", "search", 0, 420))); !errors.Is(err, rlc.ErrRefused) || !strings.Contains(err.Error(), "next try after") {
			t.Fatalf("publish: %v, want the same with the time of the next try", err)
		}
	}
	if got := s.asks.Load(); got != asked {
		t.Errorf("the server was asked %d times while waiting", got-asked)
	}
	if err := w.Trouble(); !errors.Is(err, rlc.ErrRefused) {
		t.Errorf("trouble %v, want ErrRefused", err)
	}
	// What is in the mirror is still to be read.
	if log, err := w.Repo.Log(t.Context(), "checkout", 1); err != nil || len(log) != 1 {
		t.Errorf("log meanwhile: %v, %v", log, err)
	}
	if err := os.WriteFile(w.remote.TokenFile, []byte("next-"+token), 0o600); err != nil {
		t.Fatal(err)
	}
	w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	if err := w.Trouble(); err != nil {
		t.Errorf("after a new token: trouble %v", err)
	}
	// 403 for a push alone stops pushes, not the following of the head.
	s.answer(func(r *http.Request, next http.HandlerFunc, rw http.ResponseWriter) {
		if strings.Contains(r.URL.RawQuery, "receive-pack") || isPush(r) {
			http.Error(rw, "read only", http.StatusForbidden)
			return
		}
		next(rw, r)
	})
	for range 3 {
		if _, err := w.Publish(t.Context(), proposal("checkout", "cron-2", set("checkout", "search", 0, 430))); !errors.Is(err, rlc.ErrRefused) || !strings.Contains(err.Error(), "403") {
			t.Errorf("publish: %v, want ErrRefused with the status", err)
		}
	}
	head(t, w)
	if err := w.Trouble(); err == nil {
		t.Error("no trouble, though nothing can be pushed")
	}
	// Nothing that was written here holds the token.
	_ = filepath.WalkDir(w.remote.Dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if data, _ := os.ReadFile(p); bytes.Contains(data, []byte(token)) {
				t.Errorf("%s holds the token", p)
			}
		}
		return nil
	})
}

// The server does what it was asked and its answer is lost: what is true is
// found out, and nothing is done twice.
func TestAPushWhoseAnswerIsLostIsDoneOnce(t *testing.T) {
	t.Parallel()
	w, s := newFarWorld(t)
	var also func() // what somebody does right after
	lose := func() {
		lost := false
		s.answer(func(r *http.Request, next http.HandlerFunc, rw http.ResponseWriter) {
			if !isPush(r) || lost {
				next(rw, r)
				return
			}
			lost = true
			next(httptest.NewRecorder(), r)
			if also != nil {
				also()
			}
			panic(http.ErrAbortHandler)
		})
	}
	lose()
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	if p.State != rlc.Open || p.Commit != w.rev("rlc/checkout") {
		t.Errorf("published %+v, want the commit that is there", p)
	}
	lose()
	also = func() { w.push("meanwhile", map[string]string{"README.md": "x"}) }
	c, err := w.Accept(t.Context(), p, "Ada")
	if err != nil || c.Hash != w.rev("main^") {
		t.Errorf("accepted as %+v, %v; want the commit below the person's", c, err)
	}
	lose()
	c, err = w.Edit(t.Context(), gitsync.Person{Name: "Eve"}, "owner", rlc.Files{"services/checkout/policy.yaml": bytes.Replace(policy("checkout"), []byte("team-a"), []byte("team-b"), 1)})
	if err != nil || c.Hash != w.rev("main^") {
		t.Errorf("edited as %+v, %v; want the commit below the person's", c, err)
	}
	if n := w.git(w.path, "rev-list", "--count", "main"); n != "5" {
		t.Errorf("%s commits on main, want 5", n)
	}
}

// D1, at the two moments that matter: before the server says what it has, and
// between that and the push itself.
func TestAPersonsPushBetweenLookAndPushIsKept(t *testing.T) {
	t.Parallel()
	w, s := newFarWorld(t)
	for name, when := range map[string]func(r *http.Request) bool{
		"before": func(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "receive-pack") },
		"within": isPush,
	} {
		s.answer(nil)
		p := w.publish(proposal("checkout", name, set("checkout", "caller-"+name, 0, 420)))
		theirs := once(func() { w.push("theirs", map[string]string{name: name}) })
		s.answer(func(r *http.Request, next http.HandlerFunc, rw http.ResponseWriter) {
			if when(r) {
				theirs()
			}
			next(rw, r)
		})
		if _, err := w.Accept(t.Context(), p, "Ada"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if w.show("main", name) != name || w.rates("main", "checkout")["caller-"+name] != 420 {
			t.Errorf("%s: something is lost", name)
		}
	}
	w.fsck()
}

// Somebody is faster every time: given up on after five, nothing overwritten.
func TestAPushThatNeverWinsIsAConflict(t *testing.T) {
	t.Parallel()
	w, s := newFarWorld(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	n := 0
	s.answer(func(r *http.Request, next http.HandlerFunc, rw http.ResponseWriter) {
		if isPush(r) {
			n++
			w.push("theirs", map[string]string{fmt.Sprint("file-", n): "x"})
		}
		next(rw, r)
	})
	if _, err := w.Accept(t.Context(), p, "Ada"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("error %v, want ErrConflict", err)
	}
	if n != 5 || w.rev("rlc/checkout") != p.Commit {
		t.Errorf("%d pushes, want 5 and the review as it was", n)
	}
}

func TestAServerThatCannotMoveSeveralAtOnceIsAskedOneByOne(t *testing.T) {
	t.Parallel()
	w, _ := newFarWorld(t)
	w.git(w.path, "config", "receive.advertiseAtomic", "false")
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	if w.rev("rlc/checkout") != "" || w.rates("main", "checkout")["search"] != 420 {
		t.Error("want the content on main and the branch gone")
	}
}

// A poll is one question, and nothing else while nothing moved.
func TestAPollOfWhatDidNotMoveIsOneRequest(t *testing.T) {
	t.Parallel()
	w, s := newFarWorld(t)
	before, _ := head(t, w)
	asked := s.asks.Load()
	for range 10 {
		head(t, w)
	}
	if got := s.asks.Load() - asked; got != 10 {
		t.Errorf("%d requests for 10 polls", got)
	}
	w.push("theirs", map[string]string{"README.md": "x"})
	if after, _ := head(t, w); after.Hash == before.Hash || s.asks.Load()-asked != 12 {
		t.Errorf("after a push: %+v with %d requests, want the new head with two more", after, s.asks.Load()-asked-10)
	}
	calm := w.remote
	calm.Fresh = 1 << 40
	w.Close()
	w.remote = calm
	w.Repo = w.open(gitsync.Config{})
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	asked = s.asks.Load()
	if _, err := w.Settle(t.Context(), p); err != nil || s.asks.Load() != asked {
		t.Errorf("settle on a fresh mirror: %v, %d requests, want none", err, s.asks.Load()-asked)
	}
}

// D20.
func TestARemoteThatIsNotReadySaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	two := newWorldWithTwoCommits(t)
	dir := t.TempDir()
	paths := map[string]string{"empty.git": "it has no branch at all", "renamed.git": "it has trunk", "shallow.git": "shallow", "absent.git": "404"}
	w.git(dir, "init", "-q", "--bare", "empty.git")
	w.git(dir, "clone", "-q", "--bare", w.path, "renamed.git")
	w.git(filepath.Join(dir, "renamed.git"), "branch", "-q", "-m", "main", "trunk")
	w.git(dir, "clone", "-q", "--bare", "--depth=1", "file://"+two.path, "shallow.git")
	web, secure := newWebServer(t, filepath.Join(dir, "empty.git")), newSSHServer(t, dir)
	for name, want := range paths {
		c := web.config(t)
		c.URL = web.URL + "/" + name
		if _, err := gitsync.Open(t.Context(), fresh(t, c)); err == nil || !strings.Contains(err.Error(), want) || want != "shallow" && !errors.Is(err, rlc.ErrNotFound) {
			t.Errorf("https, %s: %v, want %q", name, err, want)
		}
		if want == "404" {
			want = "not appear to be a git repository"
		}
		c = secure.config(t)
		c.URL += "/" + name
		if _, err := gitsync.Open(t.Context(), fresh(t, c)); err == nil || !strings.Contains(err.Error(), want) || want != "shallow" && !errors.Is(err, rlc.ErrNotFound) {
			t.Errorf("ssh, %s: %v, want %q", name, err, want)
		}
	}
}

// D16: once it is made anew; twice is no accident.
func TestABrokenMirrorIsMadeAnewOnce(t *testing.T) {
	t.Parallel()
	w, _ := newFarWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	objects := filepath.Join(w.remote.Dir, "mirror.git", "objects")
	empty := func() {
		w.Close()
		if err := os.RemoveAll(objects); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(objects, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	truncate := func() {
		w.Close()
		_ = filepath.WalkDir(objects, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				_ = os.Chmod(p, 0o600)
				_ = os.Truncate(p, 10)
			}
			return nil
		})
	}
	for _, harm := range []func(){empty, truncate, func() { w.Close(); _ = os.Remove(filepath.Join(w.remote.Dir, "mirror.git", "HEAD")) }} {
		harm()
		w.Repo = w.open(gitsync.Config{})
		if _, files := head(t, w); len(files[quotas]) == 0 {
			t.Error("the mirror came back without its files")
		}
		w.inForce(proposal("checkout", "again-"+w.rev("main"), set("checkout", "c"+w.rev("main")[:6], 0, 42)))
	}
	w.fsck()
}

// A restart while the server is away goes on with the mirror.
func TestARestartWithoutTheServerOpensTheMirror(t *testing.T) {
	t.Parallel()
	w, s := newFarWorld(t)
	w.Close()
	s.answer(func(_ *http.Request, _ http.HandlerFunc, rw http.ResponseWriter) {
		rw.WriteHeader(http.StatusBadGateway)
	})
	w.Repo = w.open(gitsync.Config{})
	if err := w.Trouble(); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("trouble %v, want the status", err)
	}
	if log, err := w.Repo.Log(t.Context(), "checkout", 1); err != nil || len(log) != 1 {
		t.Errorf("log %v, %v; want what the mirror holds", log, err)
	}
	if _, _, err := w.Head(t.Context()); err == nil {
		t.Error("head was read from a server that is away")
	}
	if _, err := gitsync.Open(t.Context(), fresh(t, w.remote)); err == nil {
		t.Error("a first start without the server did not fail")
	}
}

func TestSSHTrustsOnlyTheKnownKeyAndSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newSSHServer(t, w.path)
	in := func(name string) string { return filepath.Join(s.dir, name) }
	for name, c := range map[string]struct {
		change func(*gitsync.Config)
		root   error
		want   string
	}{
		"the key":          {func(*gitsync.Config) {}, nil, ""},
		"locked":           {func(c *gitsync.Config) { c.KeyFile, c.PassphraseFile = in("locked"), in("passphrase") }, nil, ""},
		"scp-like":         {func(c *gitsync.Config) { c.URL, c.User = strings.Replace(c.URL, "root@", "", 1), "root" }, nil, ""},
		"wrong server":     {func(c *gitsync.Config) { c.KnownHostsFile = in("wrong_hosts") }, rlc.ErrRefused, "is not the one in the known hosts file"},
		"unknown server":   {func(c *gitsync.Config) { c.KnownHostsFile = in("no_hosts") }, rlc.ErrRefused, "no key of"},
		"no known hosts":   {func(c *gitsync.Config) { c.KnownHostsFile = in("absent") }, rlc.ErrInvalid, "known hosts file"},
		"a stranger":       {func(c *gitsync.Config) { c.KeyFile = in("stranger") }, rlc.ErrRefused, "does not accept the key"},
		"locked out":       {func(c *gitsync.Config) { c.KeyFile = in("locked") }, rlc.ErrInvalid, "no private key that the passphrase opens"},
		"wrong passphrase": {func(c *gitsync.Config) { c.KeyFile, c.PassphraseFile = in("locked"), in("user.pub") }, rlc.ErrInvalid, "no private key that the passphrase opens"},
	} {
		conf := s.config(t)
		c.change(&conf)
		r, err := gitsync.Open(t.Context(), fresh(t, conf))
		if c.root == nil && err != nil || c.root != nil && (!errors.Is(err, c.root) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %v: %s", name, err, c.root, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "open sesame") {
			t.Errorf("%s: the passphrase is in the error", name)
		}
		if r != nil {
			before := s.conns.Load()
			for range 3 {
				if _, _, err := r.Head(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if got := s.conns.Load() - before; got != 0 {
				t.Errorf("%s: %d new connections for three polls, want the one kept", name, got)
			}
			r.Close()
		}
	}
}
