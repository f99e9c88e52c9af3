package grpclimit

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/openrlc/rlc"
)

// spending is what a handler says that its call cost, in the header or trailer
// key.
type spending struct {
	key string

	mu   sync.Mutex
	said string
}

// note reads the cost from metadata that a handler sets; the last one counts.
func (s *spending) note(md metadata.MD) {
	if v := md.Get(s.key); len(v) > 0 {
		s.mu.Lock()
		s.said = v[len(v)-1]
		s.mu.Unlock()
	}
}

// cost is what was said, in tokens; less than 0 where nothing was, where the
// cost was known beforehand (s is nil), or the call was not served to its end.
func (s *spending) cost(served bool) int64 {
	if !served || s == nil {
		return -1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := strconv.ParseInt(strings.TrimSpace(s.said), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return min(n, rlc.MaxRate)
}

// costs lets a call's metadata be heard where its cost is told so; it is nil
// where header is "": the cost is known beforehand.
func costs(ctx context.Context, header string) (context.Context, *spending) {
	if header == "" {
		return ctx, nil
	}
	s := &spending{key: strings.ToLower(header)}
	if t := grpc.ServerTransportStreamFromContext(ctx); t != nil {
		ctx = grpc.NewContextWithServerTransportStream(ctx, &heardTransport{t, s})
	}
	return ctx, s
}

// heardTransport is a call's transport whose metadata is heard.
type heardTransport struct {
	grpc.ServerTransportStream
	spent *spending
}

func (t *heardTransport) SetHeader(md metadata.MD) error {
	t.spent.note(md)
	return t.ServerTransportStream.SetHeader(md)
}

func (t *heardTransport) SendHeader(md metadata.MD) error {
	t.spent.note(md)
	return t.ServerTransportStream.SendHeader(md)
}

func (t *heardTransport) SetTrailer(md metadata.MD) error {
	t.spent.note(md)
	return t.ServerTransportStream.SetTrailer(md)
}

// heardStream is a stream whose metadata is heard, by its own methods and by
// those of package grpc that take its context.
type heardStream struct {
	grpc.ServerStream
	ctx   context.Context
	spent *spending
}

func (s *heardStream) Context() context.Context { return s.ctx }

func (s *heardStream) SetHeader(md metadata.MD) error {
	s.spent.note(md)
	return s.ServerStream.SetHeader(md)
}

func (s *heardStream) SendHeader(md metadata.MD) error {
	s.spent.note(md)
	return s.ServerStream.SendHeader(md)
}

func (s *heardStream) SetTrailer(md metadata.MD) {
	s.spent.note(md)
	s.ServerStream.SetTrailer(md)
}
