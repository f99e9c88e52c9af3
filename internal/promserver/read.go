package promserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

const (
	maxReadBody  = 1 << 20 // of the request, compressed
	maxReadFrame = 1 << 20 // of the answer: about this many bytes of chunks
)

// read answers the remote read protocol in streamed XOR chunks, the form that
// costs least on both sides. It reads raw samples as they are stored; a client
// that asks for the older form, whole samples, is refused by name.
//
// Wire: protobuf request, snappy block format; each frame of the answer is a
// varint length, the CRC-32C of the message (big endian) and a
// ChunkedReadResponse with one series.
func (s *Server) read(w http.ResponseWriter, r *http.Request) {
	req, err := readRequest(http.MaxBytesReader(w, r.Body, maxReadBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.config.QueryTimeout)
	defer cancel()
	deadline := http.NewResponseController(w)
	_ = deadline.SetWriteDeadline(time.Now().Add(s.config.QueryTimeout))
	defer context.AfterFunc(s.closing, func() {
		cancel()
		_ = deadline.SetWriteDeadline(time.Now())
	})()
	if err := s.turn(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer func() { <-s.turns }()

	w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	out := &frames{w: w}
	err = s.use(func(db *tsdb.DB) error {
		for i, q := range req.Queries {
			if err := out.query(ctx, db, int64(i), q); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err == nil:
	case out.started:
		panic(http.ErrAbortHandler) // a cut stream must not look like a whole one
	default:
		w.Header().Del("Content-Type")
		_, status := classify(err)
		http.Error(w, err.Error(), status)
	}
}

func readRequest(body io.Reader) (*prompb.ReadRequest, error) {
	compressed, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	if n, err := snappy.DecodedLen(compressed); err != nil {
		return nil, err
	} else if n > 4*maxReadBody {
		return nil, fmt.Errorf("request of %d bytes is larger than %d", n, 4*maxReadBody)
	}
	b, err := snappy.Decode(nil, compressed)
	if err != nil {
		return nil, err
	}
	var req prompb.ReadRequest
	if err := req.Unmarshal(b); err != nil {
		return nil, err
	}
	for _, t := range req.AcceptedResponseTypes {
		if t == prompb.ReadRequest_STREAMED_XOR_CHUNKS {
			return &req, nil
		}
	}
	return nil, errors.New("this server answers with STREAMED_XOR_CHUNKS only")
}

// frames writes an answer series by series.
type frames struct {
	w       io.Writer
	started bool
}

func (f *frames) query(ctx context.Context, db *tsdb.DB, index int64, q *prompb.Query) error {
	matchers, err := fromProto(q.Matchers)
	if err != nil {
		return &apiError{"bad_data", err}
	}
	querier, err := db.ChunkQuerier(q.StartTimestampMs, q.EndTimestampMs)
	if err != nil {
		return err
	}
	defer querier.Close()
	set := querier.Select(ctx, true, &storage.SelectHints{Start: q.StartTimestampMs, End: q.EndTimestampMs}, matchers...)
	var it chunks.Iterator
	for set.Next() {
		series := set.At()
		names := prompb.FromLabels(series.Labels(), nil)
		var batch []prompb.Chunk
		size := 0
		it = series.Iterator(it)
		for it.Next() {
			c := it.At()
			batch = append(batch, prompb.Chunk{MinTimeMs: c.MinTime, MaxTimeMs: c.MaxTime, Type: prompb.Chunk_Encoding(c.Chunk.Encoding()), Data: c.Chunk.Bytes()})
			if size += len(c.Chunk.Bytes()); size >= maxReadFrame {
				if err := f.write(index, names, batch); err != nil {
					return err
				}
				batch, size = nil, 0
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
		if len(batch) > 0 {
			if err := f.write(index, names, batch); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return set.Err()
}

func (f *frames) write(index int64, names []prompb.Label, batch []prompb.Chunk) error {
	m := prompb.ChunkedReadResponse{QueryIndex: index, ChunkedSeries: []*prompb.ChunkedSeries{{Labels: names, Chunks: batch}}}
	b, err := m.Marshal()
	if err != nil {
		return err
	}
	head := binary.AppendUvarint(nil, uint64(len(b)))
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	f.started = true
	if _, err := f.w.Write(head); err != nil {
		return err
	}
	_, err = f.w.Write(b)
	return err
}

func fromProto(in []*prompb.LabelMatcher) ([]*labels.Matcher, error) {
	kinds := map[prompb.LabelMatcher_Type]labels.MatchType{
		prompb.LabelMatcher_EQ: labels.MatchEqual, prompb.LabelMatcher_NEQ: labels.MatchNotEqual,
		prompb.LabelMatcher_RE: labels.MatchRegexp, prompb.LabelMatcher_NRE: labels.MatchNotRegexp,
	}
	var out []*labels.Matcher
	for _, m := range in {
		kind, ok := kinds[m.Type]
		if !ok {
			return nil, fmt.Errorf("matcher type %d is unknown", m.Type)
		}
		matcher, err := labels.NewMatcher(kind, m.Name, m.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, matcher)
	}
	return out, nil
}
