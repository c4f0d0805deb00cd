package awsmodel

import (
	"encoding/json"
	"net/http"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// admin adds the switches over HTTP. They speak JSON:
//
//	GET  /_model/machines, /_model/templates, /_model/profiles, /_model/calls, /_model/log, /_model/faults
//	PUT  /_model/faults      the whole of Faults
//	POST /_model/interrupt   {"ids": [...]}; so do rebalance, impair, break, heal, kill, reservation-warning
//	POST /_model/schedule    {"ids": [...], "event": "instance-retirement", "inSeconds": 600}
//	POST /_model/images      {"date": "20260901", "bottlerocket": "1.47.0"}
//	POST /_model/message     {"body": "any text for the interruption queue"}
func (c *Cloud) admin(mux *http.ServeMux) {
	show := func(path string, what func() any) {
		mux.HandleFunc("GET /_model/"+path, func(w http.ResponseWriter, _ *http.Request) { reply(w, what()) })
	}
	show("machines", func() any { return c.Machines() })
	show("templates", func() any { return c.Templates() })
	show("profiles", func() any { return c.Profiles() })
	show("calls", func() any { return c.Calls() })
	show("log", func() any { return c.Log() })
	show("faults", func() any { return c.Faults() })
	mux.HandleFunc("PUT /_model/faults", c.putFaults)
	for name, act := range map[string]func(...string) error{
		"interrupt": c.Interrupt, "rebalance": c.Rebalance, "impair": c.Impair, "break": c.BreakInstance, "heal": c.Heal, "kill": c.Kill,
		"reservation-warning": c.ReservationWarning,
	} {
		mux.HandleFunc("POST /_model/"+name, func(w http.ResponseWriter, r *http.Request) {
			order(w, r, func(o orders) error { return act(o.IDs...) })
		})
	}
	mux.HandleFunc("POST /_model/schedule", func(w http.ResponseWriter, r *http.Request) {
		order(w, r, func(o orders) error {
			for _, id := range o.IDs {
				if err := c.Schedule(id, ec2types.EventCode(o.Event), time.Now().Add(time.Duration(o.InSeconds)*time.Second)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	mux.HandleFunc("POST /_model/images", func(w http.ResponseWriter, r *http.Request) {
		order(w, r, func(o orders) error { return c.PublishImages(o.Date, o.Bottlerocket) })
	})
	mux.HandleFunc("POST /_model/message", func(w http.ResponseWriter, r *http.Request) {
		order(w, r, func(o orders) error { c.SendRaw(o.Body); return nil })
	})
}

// orders is what the switches take.
type orders struct {
	IDs                []string `json:"ids"`
	Event              string   `json:"event"`
	InSeconds          int      `json:"inSeconds"`
	Date, Bottlerocket string
	Body               string `json:"body"`
}

func order(w http.ResponseWriter, r *http.Request, act func(orders) error) {
	var o orders
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := act(o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, map[string]bool{"done": true})
}

func (c *Cloud) putFaults(w http.ResponseWriter, r *http.Request) {
	var f Faults
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := c.SetFaults(func(old *Faults) { *old = f }); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, f)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // a client that went away needs no answer
}
