package enforcer

import (
	"encoding/json"
	"fmt"
)

// ambiguous says which name of a check's body is given twice or in another case,
// both of which the decoder lets pass; "" for none. data is a body that decoded,
// to so many attributes. It allocates nothing for a body that is right.
func ambiguous(data []byte, attributes int) string {
	var service, attrs, cost bool
	depth, names := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			end := endOfString(data, i)
			text := data[i:min(end+1, len(data))]
			i = end
			if !colonNext(data, end+1) {
				continue
			}
			if depth > 1 {
				names++
				continue
			}
			var seen *bool
			switch name := unquoted(text); name {
			case "service":
				seen = &service
			case "attributes":
				seen = &attrs
			case "cost":
				seen = &cost
			default:
				return fmt.Sprintf("unknown field %.100q: names are in lower case", name)
			}
			if *seen {
				return string(text) + " is given twice"
			}
			*seen = true
		}
	}
	if names != attributes {
		return "an attribute is given twice"
	}
	return ""
}

// endOfString is where the string that begins at i has its closing quote.
func endOfString(data []byte, i int) int {
	for i++; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i
}

func colonNext(data []byte, i int) bool {
	for ; i < len(data); i++ {
		switch data[i] {
		case ' ', '\t', '\r', '\n':
		default:
			return data[i] == ':'
		}
	}
	return false
}

// unquoted is the text of a JSON string. A name that is written without escapes,
// as nearly all are, is compared where it stands.
func unquoted(text []byte) string {
	switch string(text) {
	case `"service"`:
		return "service"
	case `"attributes"`:
		return "attributes"
	case `"cost"`:
		return "cost"
	}
	var s string
	_ = json.Unmarshal(text, &s) // it was decoded once
	return s
}
