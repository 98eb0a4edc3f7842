"""Which events are taken out of a log because one that stems from them fails, perhaps long after."""
