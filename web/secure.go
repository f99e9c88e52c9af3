package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

// policy lets a page load what this server serves and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secure sets the headers that every answer carries.
func (s *server) secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "private, no-store")
		if s.https(r) {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

//go:embed static
var files embed.FS

// assets are the static files, compressed once where that helps, under a path
// that changes with their content.
type assets struct {
	prefix string // "/static/<version>/"
	byPath map[string]asset
}

type asset struct {
	kind         string
	plain, small []byte // small: gzip; nil where it does not help
}

func readAssets() (assets, error) {
	a := assets{byPath: map[string]asset{}}
	sum := sha256.New()
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum.Write([]byte(name))
		sum.Write(b)
		f := asset{kind: kind(name), plain: b}
		if path.Ext(name) != ".woff2" {
			var z bytes.Buffer
			g, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
			g.Write(b) //nolint:errcheck // a buffer takes everything
			g.Close()  //nolint:errcheck // as above
			f.small = z.Bytes()
		}
		a.byPath[strings.TrimPrefix(name, "static/")] = f
		return nil
	})
	a.prefix = "/static/" + hex.EncodeToString(sum.Sum(nil))[:10] + "/"
	return a, err
}

func kind(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "text/plain; charset=utf-8"
}

func (s *server) static(v *visit) error {
	f, ok := s.assets.byPath[v.r.PathValue("path")]
	if !ok {
		return fault{status: http.StatusNotFound, detail: "There is no such file."}
	}
	h := v.w.Header()
	if s.assets.prefix == "/static/"+v.r.PathValue("version")+"/" {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	body := f.plain
	if f.small != nil && takesGzip(v.r) {
		h.Set("Content-Encoding", "gzip")
		body = f.small
	}
	v.w.Write(body) //nolint:errcheck // the client has left
	return nil
}

func (s *server) favicon(v *visit) error {
	http.Redirect(v.w, v.r, s.assets.prefix+"mark.svg", http.StatusFound)
	return nil
}

func takesGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" && strings.ReplaceAll(params, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

var writers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

// compress makes text answers small for clients that ask for it.
func compress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !takesGzip(r) || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		z := &zipped{ResponseWriter: w}
		defer z.close()
		next.ServeHTTP(z, r)
	})
}

type zipped struct {
	http.ResponseWriter
	gz     *gzip.Writer
	headed bool
}

func (z *zipped) WriteHeader(status int) {
	if !z.headed {
		z.headed = true
		h := z.Header()
		t := h.Get("Content-Type")
		if h.Get("Content-Encoding") == "" && (strings.HasPrefix(t, "text/") || strings.Contains(t, "json")) {
			h.Set("Content-Encoding", "gzip")
			h.Add("Vary", "Accept-Encoding")
			h.Del("Content-Length")
			z.gz = writers.Get().(*gzip.Writer)
			z.gz.Reset(z.ResponseWriter)
		}
	}
	z.ResponseWriter.WriteHeader(status)
}

func (z *zipped) Write(b []byte) (int, error) {
	if !z.headed {
		z.WriteHeader(http.StatusOK)
	}
	if z.gz != nil {
		return z.gz.Write(b)
	}
	return z.ResponseWriter.Write(b)
}

func (z *zipped) close() {
	if z.gz != nil {
		z.gz.Close() //nolint:errcheck // the client has left
		writers.Put(z.gz)
	}
}
