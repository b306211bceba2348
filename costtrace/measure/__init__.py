"""A stopwatch on the machine at hand: what a call takes, what a device can do, what a model's parts take."""
