package policies
import "github.com/openrlc/rlc"
func resolve(g rlc.Guards) rlc.Guards { return g }
