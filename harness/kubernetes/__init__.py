"""Jobs on Kubernetes: manifests with the recorder in them, and Cases out of pods."""
