"""Decides whether figures that are sampled again and again stay flat."""

import statistics

# Fewer samples have no tenths to compare.
SAMPLES_MIN = 10


class Failure(Exception):
    """A trial has failed; the text says why."""


class Series:
    """Samples of figures. `tolerances` has, for each figure, how much it may grow from the second
    tenth of the samples to the last; None for figures that are only reported."""

    def __init__(self, tolerances):
        self.tolerances = tolerances
        self.samples = {name: [] for name in tolerances}

    def add(self, figures):
        for name in self.tolerances:
            if figures.get(name) is not None:
                self.samples[name].append(figures[name])

    def results(self):
        """Returns the growth of each figure that has samples."""
        return {
            name: {**growth(values), "tolerance": self.tolerances[name], "samples": len(values)}
            for name, values in self.samples.items()
            if values
        }

    def problems(self):
        """Returns a text for each figure that is not flat."""
        found = []
        for name, tolerance in self.tolerances.items():
            values = self.samples[name]
            if tolerance is None or not values:
                continue
            if len(values) < SAMPLES_MIN:
                found.append(f"{name}: only {len(values)} samples, {SAMPLES_MIN} are needed")
                continue
            seen = growth(values)
            if seen["last"] - seen["first"] > tolerance:
                found.append(
                    f"{name} grew from {seen['first']} to {seen['last']} in {len(values)} samples, "
                    f"by more than {tolerance}"
                )
        return found


def growth(values):
    """Returns the medians of the second and the last tenth: in the first tenth, caches fill."""
    tenth = max(1, len(values) // 10)
    second = values[tenth : 2 * tenth] or values
    return {"first": statistics.median(second), "last": statistics.median(values[-tenth:])}


def left(before, now, allowed=()):
    """Returns in order what there is now, was not there before, and is not allowed to be left.
    Each trace is a pair: what it is, and its name."""
    return sorted(set(now) - set(before) - set(allowed))
