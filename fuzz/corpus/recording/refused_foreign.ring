{"step": 1}
