"""Plain pods and pod groups (KEP-976).

A pod cannot be suspended, so it is gated before it is stored (`webhook`) and ungated when its
Workload is admitted; it cannot be restarted, so stopping means deleting. Start reading at `single`
(one pod, one Workload) and `roster` (which pods of a group count, and which are deleted), then
`group`.
"""
