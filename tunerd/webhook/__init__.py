"""``tunerd webhook``: recommended parameters for Jobs, as they are created in Kubernetes.

:mod:`.review` answers one AdmissionReview, :mod:`.launch` chooses for it, :mod:`.server` takes it
over TLS. Whatever goes wrong, the Job is admitted as it came.
"""
