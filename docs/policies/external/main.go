// Command external is an example of a model that an external policy asks: the
// highest hour of the last seven days × 1.2, and nothing for a caller that it
// has seen for less than two days. It needs the standard library only; a model
// in any other language answers the same two JSON objects.
//
//	go run ./docs/policies/external --listen 127.0.0.1:8090
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"
)

// question is what this model reads of question.schema.json.
type question struct {
	Now       time.Time `json:"now"`
	ValidDays float64   `json:"valid_days"`
	Hours     []struct {
		Start     time.Time `json:"start"`
		Max       float64   `json:"max"`
		Unhealthy bool      `json:"unhealthy"`
	} `json:"hours"`
}

// answer is what it may say, as in answer.schema.json.
type answer struct {
	Rate    float64 `json:"rate,omitempty"`
	Burst   int64   `json:"burst,omitempty"`
	Why     string  `json:"why,omitempty"`
	Abstain string  `json:"abstain,omitempty"`
}

func model(q question) answer {
	if q.ValidDays < 2 {
		return answer{Abstain: fmt.Sprintf("%.1f days of history, 2 needed", q.ValidDays)}
	}
	peak := 0.0
	for _, h := range q.Hours {
		if q.Now.Sub(h.Start) <= 7*24*time.Hour && !h.Unhealthy {
			peak = max(peak, h.Max)
		}
	}
	if peak == 0 {
		return answer{Abstain: "no healthy traffic in 7 days"}
	}
	return answer{Rate: peak * 1.2, Why: fmt.Sprintf("highest hour of 7 days %.4g/s × 1.2", peak)}
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8090", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /quota", func(w http.ResponseWriter, r *http.Request) {
		var q question
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 8<<20)).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(model(q)) // the asker is gone: nobody is left to tell
	})
	fmt.Printf("ready: http://%s/quota\n", listener.Addr())
	log.Fatal((&http.Server{Handler: mux, ReadTimeout: 10 * time.Second}).Serve(listener))
}
