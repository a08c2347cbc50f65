"""A node whose pods are local processes, and the API of its kubelet.

Start reading at `containers.py`: what `KubeletServer` of `server.py` asks of what runs the pods.
`LocalNode` of `node.py` does; it starts a `PodWorker` for each pod, which carries out what the pure
functions of `lifecycle.py` decide.
"""
