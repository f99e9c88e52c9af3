package policies

import (
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies/expression"
	"github.com/openrlc/rlc/policies/external"
	"github.com/openrlc/rlc/policies/recent"
)

func buildRecent(d *decoder) rlc.Policy {
	var c recent.Config
	if v, ok := d.number("headroom", 0, 10); ok {
		c.Headroom = &v
	}
	return recent.New(c)
}

// buildExternal makes policies that ask through client.
func buildExternal(client *external.Client) func(*decoder) rlc.Policy {
	return func(d *decoder) rlc.Policy {
		url, _ := d.text("url")
		timeout, _ := d.duration("timeout", time.Second, external.MaxTimeout)
		if d.failed() {
			return nil
		}
		p, err := external.New(external.Config{URL: url, Timeout: timeout}, client)
		if err != nil {
			d.problem(err.Error(), "as in https://models.example/quota")
			return nil
		}
		return p
	}
}

func buildExpression(d *decoder) rlc.Policy {
	text, _ := d.text("expression")
	planned, _ := d.number("planned", 0, rlc.MaxRate)
	if d.failed() {
		return nil
	}
	p, problems := expression.New(expression.Config{Expression: text, Planned: planned})
	if len(problems) > 0 {
		d.problems = append(d.problems, problems...)
		return nil
	}
	return p
}
