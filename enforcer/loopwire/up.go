package loopwire

import (
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// encode is a *parcel, or a protobuf message, for the wire.
func encode(v any) (pieces [][]byte, err error) {
	p, ok := v.(*parcel)
	if !ok {
		data, err := proto.Marshal(v.(proto.Message))
		return [][]byte{data}, err
	}
	if p.names == nil {
		return [][]byte{p.data}, nil
	}
	// Fields that follow one another are one message.
	names, err := proto.Marshal(&pb.Down{Names: p.names})
	return [][]byte{names, p.data}, err
}

// nodeUp is a pb.NodeUp whose report is in columns.
type nodeUp struct {
	pb.NodeUp
	columns *columns // nil: no report
	pool    *sync.Pool
}

// columns are the lists of a pb.Report, and room for what they say.
type columns struct {
	seq, at                        uint64
	paths, since, offered, dropped []uint64
	room                           []loop.PathReport
}

// The numbers of fields that are read here.
const (
	fieldReport = 3 // of NodeUp
	fieldSeq    = 1 // of Report
	fieldAt     = 2
	fieldPaths  = 3
	fieldSince  = 4
	fieldOffer  = 5
	fieldDrop   = 6
)

// done hands the columns back. The report that was made of them is not to be
// used any more.
func (in *nodeUp) done() {
	if in.columns != nil {
		in.pool.Put(in.columns)
		in.columns = nil
	}
}

// read decodes a message. Nearly all are a report and nothing else.
func (in *nodeUp) read(data []byte) error {
	in.done()
	in.Reset()
	for rest := data; len(rest) > 0; {
		field, kind, value, n := next(rest)
		if n < 0 {
			return protowire.ParseError(n)
		}
		rest = rest[n:]
		if field != fieldReport || kind != protowire.BytesType {
			if err := proto.Unmarshal(data, &in.NodeUp); err != nil {
				return err
			}
			continue
		}
		if in.columns == nil {
			in.columns, _ = in.pool.Get().(*columns)
			if in.columns == nil {
				in.columns = &columns{}
			}
			in.columns.clear()
		}
		if err := in.columns.read(value); err != nil {
			return err
		}
	}
	in.Report = nil
	return nil
}

// next is the first field of a message: the content of one that has a length,
// the encoded value of any other. n is its length with the tag, negative for a
// damaged one.
func next(data []byte) (field protowire.Number, kind protowire.Type, value []byte, n int) {
	field, kind, tag := protowire.ConsumeTag(data)
	if tag < 0 {
		return 0, 0, nil, tag
	}
	if kind == protowire.BytesType {
		value, n = protowire.ConsumeBytes(data[tag:])
	} else {
		n = protowire.ConsumeFieldValue(field, kind, data[tag:])
		value = data[tag : tag+max(n, 0)]
	}
	if n < 0 {
		return 0, 0, nil, n
	}
	return field, kind, value, tag + n
}

func (c *columns) clear() {
	*c = columns{paths: c.paths[:0], since: c.since[:0], offered: c.offered[:0], dropped: c.dropped[:0], room: c.room}
}

// read adds what a pb.Report says. A list is numbers without gaps, whether it
// came packed or, as protobuf allows, one by one.
func (c *columns) read(data []byte) (err error) {
	for len(data) > 0 {
		field, kind, value, n := next(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		var list *[]uint64
		switch field {
		case fieldPaths:
			list = &c.paths
		case fieldSince:
			list = &c.since
		case fieldOffer:
			list = &c.offered
		case fieldDrop:
			list = &c.dropped
		}
		switch {
		case list != nil && (kind == protowire.BytesType || kind == protowire.VarintType):
			*list, err = unpack(*list, value)
		case field == fieldSeq && kind == protowire.VarintType:
			c.seq, _ = protowire.ConsumeVarint(value)
		case field == fieldAt && kind == protowire.VarintType:
			c.at, _ = protowire.ConsumeVarint(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unpack appends the varints of data.
func unpack(to []uint64, data []byte) ([]uint64, error) {
	for len(data) > 0 {
		if data[0] < 0x80 {
			to, data = append(to, uint64(data[0])), data[1:]
			continue
		}
		v, n := protowire.ConsumeVarint(data)
		if n < 0 {
			return to, protowire.ParseError(n)
		}
		to, data = append(to, v), data[n:]
	}
	return to, nil
}

// report is what the columns say. It is good until they are used again.
func (c *columns) report(names *reader) (loop.Report, error) {
	n := len(c.paths)
	if len(c.since) != n || len(c.offered) != n*loop.Classes {
		return loop.Report{}, errLists
	}
	if cap(c.room) < n {
		c.room = make([]loop.PathReport, n)
	}
	r := loop.Report{Seq: c.seq, At: micros(int64(c.at)), Paths: c.room[:n]}
	dropped := c.dropped
	for i, id := range c.paths {
		path, err := names.path(uint32(id))
		if err != nil {
			return loop.Report{}, err
		}
		if len(dropped) < len(path) {
			return loop.Report{}, errLists
		}
		p := &r.Paths[i]
		p.Path, p.Since = path, micros(int64(min(c.since[i], maxMicros)))
		copy(p.Offered[:], c.offered[i*loop.Classes:])
		p.Dropped, dropped = dropped[:len(path):len(path)], dropped[len(path):]
	}
	return r, nil
}
