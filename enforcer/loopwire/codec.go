package loopwire

import (
	"fmt"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

var errLists = fmt.Errorf("%w: lists of different lengths", rlc.ErrInvalid)

func encodeReport(w *writer, r loop.Report) *pb.Report {
	n := len(r.Paths)
	out := &pb.Report{Seq: r.Seq, AtUs: r.At.Microseconds(),
		Paths: make([]uint32, 0, n), SinceUs: make([]uint64, 0, n), Offered: make([]uint64, 0, n*loop.Classes), Dropped: make([]uint64, 0, n)}
	for i := range r.Paths {
		p := &r.Paths[i]
		out.Paths = append(out.Paths, w.path(p.Path))
		out.SinceUs = append(out.SinceUs, uint64(max(p.Since.Microseconds(), 0)))
		out.Offered = append(out.Offered, p.Offered[:]...)
		out.Dropped = append(out.Dropped, p.Dropped...)
	}
	return out
}

// maxMicros keeps a duration made of microseconds from overflowing.
const maxMicros = 1 << 52

func micros(us int64) time.Duration {
	return time.Duration(min(max(us, -maxMicros), maxMicros)) * time.Microsecond
}

func encodeSum(w *writer, s loop.Sum) *pb.Sum {
	out := &pb.Sum{Seq: s.Seq, Leaving: s.Leaving, Members: uint32(s.Members), Flagged: s.Flagged}
	for _, t := range s.Taken {
		out.TakenFrom, out.TakenEpoch, out.TakenNodes = append(out.TakenFrom, t.From.Name), append(out.TakenEpoch, t.From.Epoch), append(out.TakenNodes, uint32(t.Nodes))
	}
	for i := range s.Paths {
		p := &s.Paths[i]
		out.Paths = append(out.Paths, w.path(p.Path))
		out.Nodes = append(out.Nodes, uint32(p.Nodes))
		out.Offered = append(out.Offered, p.Offered[:]...)
		out.Dropped = append(out.Dropped, p.Dropped...)
		out.Doubted = append(out.Doubted, p.Doubted)
		out.Counted, out.Spans = append(out.Counted, p.Counted), append(out.Spans, p.Spans)
	}
	for _, k := range s.Keeps {
		out.KeptBuckets = append(out.KeptBuckets, w.bucket(k.Bucket))
		out.Keeps = append(out.Keeps, k.Keep[:]...)
	}
	return out
}

func decodeSum(names *reader, in *pb.Sum) (loop.Sum, error) {
	n := len(in.Paths)
	if len(in.Nodes) != n || len(in.Doubted) != n || len(in.Offered) != n*loop.Classes || len(in.Keeps) != len(in.KeptBuckets)*loop.Classes ||
		len(in.Counted) != len(in.Spans) || len(in.Counted) != n && len(in.Counted) != 0 || len(in.TakenEpoch) != len(in.TakenFrom) || len(in.TakenNodes) != len(in.TakenFrom) {
		return loop.Sum{}, errLists
	}
	s := loop.Sum{Seq: in.Seq, Leaving: in.Leaving, Members: int(in.Members), Flagged: in.Flagged, Paths: make([]loop.PathSum, n), Keeps: make([]loop.BucketKeep, len(in.KeptBuckets))}
	for i, name := range in.TakenFrom {
		s.Taken = append(s.Taken, loop.Taken{From: loop.Origin{Name: name, Epoch: in.TakenEpoch[i]}, Nodes: int(in.TakenNodes[i])})
	}
	dropped := in.Dropped
	for i, id := range in.Paths {
		path, err := names.path(id)
		if err != nil {
			return loop.Sum{}, err
		}
		if len(dropped) < len(path) {
			return loop.Sum{}, errLists
		}
		p := &s.Paths[i]
		p.Path, p.Nodes, p.Doubted = path, int(in.Nodes[i]), in.Doubted[i]
		if len(in.Counted) > 0 {
			p.Counted, p.Spans = in.Counted[i], in.Spans[i]
		}
		copy(p.Offered[:], in.Offered[i*loop.Classes:])
		p.Dropped, dropped = dropped[:len(path):len(path)], dropped[len(path):]
	}
	for i, id := range in.KeptBuckets {
		name, err := names.bucket(id)
		if err != nil {
			return loop.Sum{}, err
		}
		s.Keeps[i].Bucket = name
		copy(s.Keeps[i].Keep[:], in.Keeps[i*loop.Classes:])
	}
	return s, nil
}

// The bits of a directive's flags; the lowest two are the scope.
const (
	flagNone   = 4
	flagDecide = 8
	flagHot    = 16
)

// encodeDirectives leaves of d what has a number. A source is told its share, too.
func encodeDirectives(numbers map[string]uint32, d loop.Directives, source bool) *pb.Directives {
	out := &pb.Directives{Epoch: d.Epoch, Seq: d.Seq}
	for i := range d.List {
		v := &d.List[i]
		number, ok := numbers[v.Bucket]
		if !ok {
			continue
		}
		flags := uint32(v.Scope)
		for _, f := range []struct {
			set bool
			bit uint32
		}{{v.None, flagNone}, {v.Decide, flagDecide}, {v.Hot, flagHot}} {
			if f.set {
				flags |= f.bit
			}
		}
		out.Buckets, out.Flags, out.Nodes = append(out.Buckets, number), append(out.Flags, flags), append(out.Nodes, uint32(v.Nodes))
		out.Limit, out.Load, out.Keep = append(out.Limit, v.Limit), append(out.Load, v.Load), append(out.Keep, v.Keep[:]...)
		if source {
			out.Share, out.Spare = append(out.Share, v.Share), append(out.Spare, v.Spare)
		}
	}
	return out
}

func decodeDirectives(names *reader, in *pb.Directives) (loop.Directives, error) {
	n := len(in.Buckets)
	if len(in.Flags) != n || len(in.Limit) != n || len(in.Keep) != n*loop.Classes || len(in.Nodes) != n ||
		len(in.Load) != n || len(in.Share) != len(in.Spare) || len(in.Share) != n && len(in.Share) != 0 {
		return loop.Directives{}, errLists
	}
	d := loop.Directives{Epoch: in.Epoch, Seq: in.Seq, List: make([]loop.Directive, n)}
	for i, id := range in.Buckets {
		name, err := names.bucket(id)
		if err != nil {
			return loop.Directives{}, err
		}
		flags := in.Flags[i]
		v := &d.List[i]
		*v = loop.Directive{Bucket: name, Scope: loop.Scope(flags & 3), None: flags&flagNone != 0, Decide: flags&flagDecide != 0,
			Hot: flags&flagHot != 0, Limit: in.Limit[i], Nodes: int(in.Nodes[i]), Load: in.Load[i]}
		if len(in.Share) > 0 {
			v.Share, v.Spare = in.Share[i], in.Spare[i]
		}
		copy(v.Keep[:], in.Keep[i*loop.Classes:])
	}
	return d, nil
}
