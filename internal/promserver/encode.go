package promserver

import (
	"encoding/json"
	"io"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// encoder writes Prometheus' JSON as it goes, so that an answer of millions of
// samples takes no memory of its own. The first error sticks.
type encoder struct {
	w   io.Writer
	buf []byte
	err error
}

func (e *encoder) answer(data any, warnings, infos []string) {
	e.raw(`{"status":"success","data":`)
	switch d := data.(type) {
	case promql.Matrix:
		e.raw(`{"resultType":"matrix","result":`)
		list(e, d, e.series)
		e.raw(`}`)
	case promql.Vector:
		e.raw(`{"resultType":"vector","result":`)
		list(e, d, e.sample)
		e.raw(`}`)
	case promql.Scalar:
		e.raw(`{"resultType":"scalar","result":`)
		e.point(d.T, d.V)
		e.raw(`}`)
	case promql.String:
		e.raw(`{"resultType":"string","result":[`)
		e.time(d.T)
		e.raw(`,`)
		e.text(d.V)
		e.raw(`]}`)
	case []labels.Labels:
		list(e, d, e.labels)
	case []string:
		list(e, d, e.text)
	}
	for _, notes := range []struct {
		name string
		list []string
	}{{"warnings", warnings}, {"infos", infos}} {
		if len(notes.list) > 0 {
			e.raw(`,"` + notes.name + `":`)
			list(e, notes.list, e.text)
		}
	}
	e.raw(`}`)
	e.flush()
}

func (e *encoder) failure(kind, message string) {
	e.raw(`{"status":"error","errorType":`)
	e.text(kind)
	e.raw(`,"error":`)
	e.text(message)
	e.raw(`}`)
	e.flush()
}

// series leaves native histograms out: nothing here stores any.
func (e *encoder) series(s promql.Series) {
	e.raw(`{"metric":`)
	e.labels(s.Metric)
	e.raw(`,"values":[`)
	for i, p := range s.Floats {
		if i > 0 {
			e.raw(`,`)
		}
		e.point(p.T, p.F)
	}
	e.raw(`]}`)
}

func (e *encoder) sample(s promql.Sample) {
	e.raw(`{"metric":`)
	e.labels(s.Metric)
	e.raw(`,"value":`)
	e.point(s.T, s.F)
	e.raw(`}`)
}

func (e *encoder) labels(l labels.Labels) {
	e.raw(`{`)
	first := true
	l.Range(func(l labels.Label) {
		if !first {
			e.raw(`,`)
		}
		first = false
		e.text(l.Name)
		e.raw(`:`)
		e.text(l.Value)
	})
	e.raw(`}`)
}

func (e *encoder) point(t int64, v float64) {
	e.raw(`[`)
	e.time(t)
	e.raw(`,"`)
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	e.buf = strconv.AppendFloat(e.buf, v, format, -1, 64)
	e.raw(`"]`)
}

// time writes Unix milliseconds as seconds.
func (e *encoder) time(t int64) {
	if t < 0 {
		e.raw(`-`)
		t = -t
	}
	e.buf = strconv.AppendInt(e.buf, t/1000, 10)
	if ms := t % 1000; ms != 0 {
		e.buf = append(e.buf, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
		for e.buf[len(e.buf)-1] == '0' {
			e.buf = e.buf[:len(e.buf)-1]
		}
	}
}

func (e *encoder) text(s string) {
	b, err := json.Marshal(s)
	if err != nil && e.err == nil {
		e.err = err
	}
	e.buf = append(e.buf, b...)
}

func (e *encoder) raw(s string) {
	e.buf = append(e.buf, s...)
	if len(e.buf) >= 32<<10 {
		e.flush()
	}
}

func (e *encoder) flush() {
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

func list[T any](e *encoder, items []T, one func(T)) {
	e.raw(`[`)
	for i, item := range items {
		if i > 0 {
			e.raw(`,`)
		}
		one(item)
		if e.err != nil {
			return
		}
	}
	e.raw(`]`)
}
