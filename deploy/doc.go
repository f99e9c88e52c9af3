// Package deploy holds no code: its tests read the image's build file, the
// units and the manifests as their readers do.
package deploy
