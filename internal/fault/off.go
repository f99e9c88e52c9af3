//go:build !fault

package fault

// Armed reports whether this build can kill itself: false.
const Armed = false

// Hit marks the fault point name. In this build it does nothing.
func Hit(name string) {}
