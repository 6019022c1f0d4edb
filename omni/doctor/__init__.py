"""`python -m omni.doctor`: looks at the machine, the deployment and what runs, and says what to do."""
