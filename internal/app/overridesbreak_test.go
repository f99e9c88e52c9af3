package app_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/app"
)

// hold takes the records of dir away from whoever writes, until the function
// that it returns is called.
func hold(t *testing.T, dir string) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "rlc.db")+"?_txlock=immediate&_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = tx.Rollback(); _ = db.Close() }
	t.Cleanup(release)
	return release
}

// acts are the audit rows of an emergency, the oldest first.
func acts(t *testing.T, a *app.App) (out []string) {
	t.Helper()
	entries, _, err := a.Records.Audit(t.Context(), rlc.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Backward(entries) {
		if strings.HasPrefix(e.Action, "override.") || strings.HasPrefix(e.Action, "switch.") {
			out = append(out, e.Action+" "+e.Actor+": "+e.Detail)
		}
	}
	return out
}

func pagesSay(a *app.App, part string) bool {
	for _, b := range a.Banners() {
		if strings.Contains(b.Text, part) {
			return true
		}
	}
	return false
}

// With the records away an act is checked as they would check it, an end and an
// extension come one after the other, and what the disk does not take either is
// in force and said to be written nowhere.
func TestActsWithoutRecordsAreCheckedInOrderAndInForceWithAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, twoServices(), nil)
	first, err := a.SetOverride(t.Context(), block(time.Hour), "ana")
	if err != nil {
		t.Fatal(err)
	}
	release := hold(t, dir)

	ended := make(chan error, 1)
	go func() { _, err := a.EndOverride(t.Context(), first.ID, "ana"); ended <- err }()
	eventually(t, "the end waits for the records", a.Acting)
	if _, err := a.ExtendOverride(t.Context(), first.ID, time.Time{}, time.Hour, "bob"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("an extension after the end: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}

	nul := block(time.Hour)
	nul.Reason = "nul\x00"
	if _, err := a.SetOverride(t.Context(), nul, "ana"); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("an override that cannot be recorded: %v", err)
	}
	if err := a.CheckOverride(nul, "ana"); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("its preview: %v", err)
	}
	if err := a.SetSwitch(t.Context(), rlc.AllToShadow, true, "ana", "nul\x00"); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("a switch that cannot be recorded: %v", err)
	}

	journal := filepath.Join(dir, "emergency.journal")
	if err := os.Rename(journal, journal+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(journal, "in the way"), 0o700); err != nil { // the file cannot be written
		t.Fatal(err)
	}
	second, err := a.SetOverride(t.Context(), block(time.Hour), "ana")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "dropped", func() bool { return outcome(a, "checkout", "search") == enforcer.Drop })
	if text := a.OverridesTrouble(); !strings.Contains(text, "a restart of rlc would forget it") || !pagesSay(a, "not written down") {
		t.Errorf("trouble %q, banners %+v", text, a.Banners())
	}
	if err := os.RemoveAll(journal); err != nil {
		t.Fatal(err)
	}
	eventually(t, "written down", func() bool {
		text, err := os.ReadFile(journal)
		return err == nil && strings.Contains(string(text), second.ID) && a.OverridesTrouble() == ""
	})
	release()
	eventually(t, "recorded", func() bool { _, err := os.Stat(journal); return os.IsNotExist(err) })
	if got := acts(t, a); len(got) != 3 || !strings.HasPrefix(got[1], "override.ended ana") || !strings.HasPrefix(got[2], "override.set ana") {
		t.Errorf("audit %q", got)
	}
}

// What an earlier release acknowledged without a check is recorded with an
// audit row for each act, and no override in it keeps others from enforcers.
func TestAJournalOfAnEarlierReleaseIsRecordedWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set := block(time.Hour)
	set.ID, set.Actor, set.Reason = "override-1", "ana", "nul\x00"
	end := set
	end.EndedBy, end.Until = "bob", time.Now().Add(-time.Minute)
	set.From, end.From = end.Until.Add(-time.Hour), end.Until.Add(-time.Hour)
	longer := set
	longer.Until = longer.Until.Add(time.Hour)
	huge := block(time.Hour)
	huge.ID, huge.Actor = "override-2", "ana"
	for range 900 {
		huge.Match["caller"] = append(huge.Match["caller"], strings.Repeat("<", 1000))
	}
	var text []byte
	for i, x := range []struct {
		o                     rlc.Override
		actor, action, detail string
	}{{set, "ana", "override.set", "nul\x00"}, {end, "bob", "override.ended", "end"}, {longer, "eve", "override.extended", "longer"}, {huge, "ana", "override.set", "huge"}} {
		line, err := json.Marshal(map[string]any{"override": x.o, "audit": rlc.AuditEntry{ID: string(rune('a' + i)), At: time.Now(), Actor: x.actor, Action: x.action, Object: x.o.ID, Detail: x.detail}})
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(append(text, '\n'), line...), '\n')
	}
	journal := filepath.Join(dir, "emergency.journal")
	if err := os.WriteFile(journal, text, 0o600); err != nil {
		t.Fatal(err)
	}
	a := open(t, dir, twoServices(), nil)
	eventually(t, "recorded", func() bool { _, err := os.Stat(journal); return os.IsNotExist(err) })
	want := []string{"override.set ana: nul�", "override.ended bob: end", "override.extended eve: longer (without effect: it was ended before this was recorded)", "override.set ana: huge"}
	if got := acts(t, a); !slices.Equal(got, want) {
		t.Errorf("audit %q, want %q", got, want)
	}
	eventually(t, "what is not in force is said", func() bool { return pagesSay(a, "1 override not in force") })
	for _, o := range a.Overrides() {
		if o.ID == "override-1" && o.Until.After(time.Now()) {
			t.Errorf("the override that was ended stands: %+v", o)
		}
	}
	if _, err := a.SetOverride(t.Context(), block(time.Hour), "ana"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "dropped", func() bool { return outcome(a, "checkout", "search") == enforcer.Drop })
	if err := a.SetSwitch(t.Context(), rlc.AllToShadow, true, "ana", "INC-2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing drops", func() bool { return outcome(a, "checkout", "search") != enforcer.Drop })
}
