//go:build fault

package fault

import "os"

// Armed reports whether this build can kill itself: true.
const Armed = true

// Hit marks the fault point name: where the environment says RLC_FAULT=name,
// the process dies here by SIGKILL and Hit does not return.
func Hit(name string) {
	if name == "" || os.Getenv("RLC_FAULT") != name {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		panic("fault: " + err.Error())
	}
	if err := self.Kill(); err != nil {
		panic("fault: " + err.Error())
	}
	select {} // the signal may arrive a moment later
}
