package quotafile_test

import (
	"strings"
	"testing"
)

func TestAKeyInTheWrongPlaceIsToldTheRightOne(t *testing.T) {
	top, bucket := policyHead+"buckets: [{name: b}]\n", policyHead+"buckets:\n  - name: b\n"
	for data, want := range map[string]string{
		top + "headroom: 30%\n":              `5:1: unknown key "headroom" in the file; it belongs under policy, of a bucket or of defaults`,
		top + "each: [caller]\n":             `5:1: unknown key "each" in the file; it belongs to a bucket`,
		top + "defaults: {floor: 5}\n":       `5:12: unknown key "floor" in defaults; it belongs under guards, of a bucket or of defaults`,
		top + "algorithm: gcra\n":            `5:1: unknown key "algorithm" in the file; it belongs to a bucket or under defaults`,
		bucket + "    owners: [x]\n":         `6:5: unknown key "owners" in bucket; it belongs at the top of the file`,
		bucket + "    polic: {}\n":           `6:5: unknown key "polic" in bucket; did you mean policy?`,
		bucket + "    rollout: {limit: 1}\n": `6:14: rollout lacks the key zones|6:15: unknown key "limit" in rollout`,
	} {
		if got := strings.Join(errorsIn(data), "|"); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", data, got, want)
		}
	}
}

func TestAWordForTheListOfEachIsOneError(t *testing.T) {
	if got := strings.Join(errorsIn(policyHead+"buckets:\n  - name: b\n    each: caller\n"), "|"); got != "6:11: each: want a list; write [caller]" {
		t.Errorf("got %s", got)
	}
}
