// Package fault lets a test kill the program at a named point, as a power cut
// would. It is compiled in by the build tag "fault" only; in every other build
// Hit does nothing and costs nothing.
//
// In a build with the tag, RLC_FAULT=name arms the point of that name: the
// first Hit(name) kills the process with SIGKILL. Nothing is flushed and no
// deferred function runs, which is what a fault test wants to see survived.
package fault
