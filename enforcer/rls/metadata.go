package rls

import (
	"strings"
	"sync"
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// metadata makes the dynamic metadata of answers: bucket, outcome and
// snapshot, for Envoy's access log. Encoding a Struct costs several decisions,
// and one snapshot has few: they are encoded once and kept.
type metadata struct{ current atomic.Pointer[encodings] }

// encodings are those of one snapshot.
type encodings struct {
	version rlc.Version
	known   sync.Map // told to []byte
}

// told is what metadata says.
type told struct {
	bucket  string
	outcome enforcer.Outcome
}

// add puts d's metadata into an answer that is on its way to the wire: as
// bytes that are sent as they are. Whoever reads the answer finds its
// DynamicMetadata.
func (m *metadata) add(out *pb.RateLimitResponse, d *enforcer.Decision) {
	all := m.current.Load()
	if all == nil || all.version != d.Version {
		all = &encodings{version: d.Version}
		m.current.Store(all)
	}
	key := told{d.Bucket, d.Outcome}
	raw, ok := all.known.Load(key)
	if !ok {
		// An answer with nothing else encodes to the field alone.
		b, err := proto.Marshal(&pb.RateLimitResponse{DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"bucket":   structpb.NewStringValue(text(d.Bucket)),
			"outcome":  structpb.NewStringValue(string(d.Outcome)),
			"snapshot": structpb.NewStringValue(d.Version.String()),
		}}})
		if err != nil {
			return // only text that is not UTF-8 cannot be encoded
		}
		all.known.Store(key, b)
		raw = b
	}
	out.ProtoReflect().SetUnknown(raw.([]byte))
}

// text is s as protobuf can hold it.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }
