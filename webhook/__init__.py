"""AdmissionReview in; verdict, patch and warnings out."""
