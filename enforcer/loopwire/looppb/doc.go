// Package looppb is the generated code of loop.proto, the contract of the
// drop-ratio loop:
//
//	protoc -I enforcer/loopwire/looppb --go_out=. --go-grpc_out=. \
//	  --go_opt=module=github.com/openrlc/rlc --go-grpc_opt=module=github.com/openrlc/rlc loop.proto
//
// with Debian's protobuf-compiler, protoc-gen-go built from this module's own
// google.golang.org/protobuf/cmd/protoc-gen-go, and
// google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.5.1.
package looppb
