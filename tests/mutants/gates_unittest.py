"""Tests of gates.py: python3 -m unittest discover -s tests/mutants -p '*_unittest.py'"""

import importlib.util
import re
import unittest

if importlib.util.find_spec("tree_sitter_rust") is None:
    raise unittest.SkipTest("no parser: pip install -r tests/mutants/requirements.txt")
import gates


def mutant(text, genre, place, replacement=""):
    """Returns a mutant whose first character is the first of `place` in the text."""
    before = text[: text.index(place)]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    start = {"line": line, "column": column}
    return {"genre": genre, "replacement": replacement, "span": {"start": start}}


def built(text, *mutants):
    """Returns the text with gates, without marks, and the numbers of the mutants that have one."""
    source = gates.Source(text, dict(enumerate(mutants, 1)))
    changed = re.sub(r"/\*(<\d+|\d+>)\*/", "", source.with_gates())
    return changed.replace("crate::mutant::on", "on"), source.placed


class Gates(unittest.TestCase):
    def test_operators_are_chosen_by_number_and_inner_ones_stay_in_the_unchanged_code(self):
        text = "fn f() -> bool { a + b == 3 }"
        plus = mutant(text, "BinaryOperator", "+", "-")
        equal = mutant(text, "BinaryOperator", "==", "!=")
        inner = "(if on(1) { a  -  b } else { a + b })"
        outer = f"(if on(2) {{ a + b  !=  3 }} else {{ {inner} == 3 }})"
        self.assertEqual(built(text, plus, equal), (f"fn f() -> bool {{ {outer} }}", {1, 2}))

    def test_two_mutants_of_a_place_have_a_gate_each(self):
        text = "fn f() { x += 1; }"
        changed, placed = built(text, *(mutant(text, "BinaryOperator", "+=", new)
                                        for new in ("-=", "*=")))
        first = "(if on(1) { x  -=  1 } else { x += 1 })"
        self.assertEqual(changed, f"fn f() {{ (if on(2) {{ x  *=  1 }} else {{ {first} }}); }}")
        self.assertEqual(placed, {1, 2})

    def test_a_function_returns_the_value_first_whatever_comments_it_begins_with(self):
        text = "/// Says é.\nfn f() -> u8 {\n    // Why.\n    g(7)\n}"
        changed, placed = built(text, mutant(text, "FnValue", "g(7)", "0"))
        returns = "{if on(1) { return 0; }"
        self.assertEqual(changed, text.replace("{", returns))
        self.assertEqual(placed, {1})

    def test_a_negation_is_left_out(self):
        text = "fn f() { if !a {} }"
        changed, _ = built(text, mutant(text, "UnaryOperator", "!"))
        self.assertEqual(changed, "fn f() { if (if on(1) { a } else { !a }) {} }")

    def test_an_arm_is_deleted_by_its_guard(self):
        text = "fn f() { match x { 1 => a, 2 if b => c, _ => d } }"
        first = mutant(text, "MatchArm", "1 =>")
        second = mutant(text, "MatchArm", "2 if")
        guard = mutant(text, "MatchArmGuard", "b =>", "true")
        changed, placed = built(text, first, second, guard)
        arms = "1 if !on(1) => a, 2 if !on(2) && ((if on(3) { true } else { b })) => c, _ => d"
        self.assertEqual(changed, f"fn f() {{ match x {{ {arms} }} }}")
        self.assertEqual(placed, {1, 2, 3})

    def test_what_can_have_no_gate_is_as_it_was(self):
        chain = "fn f() { if a && let Some(b) = c {} }"
        opaque = "fn f() -> impl Iterator<Item = u8> { g() }"
        for text, genre, place in ((chain, "BinaryOperator", "&&"), (opaque, "FnValue", "g()")):
            self.assertEqual(built(text, mutant(text, genre, place, "||")), (text, set()))

    def test_a_place_in_the_changed_code_is_blamed_on_its_mutant(self):
        text = "fn f() { match y { 1 => a + b, _ => c } }"
        plus = mutant(text, "BinaryOperator", "+", "-")
        arm = mutant(text, "MatchArm", "1 =>")
        changed = gates.Source(text, {5: plus, 6: arm}).with_gates()

        def blamed(place):
            start = changed.index(place)
            return gates.blamed(changed, start, start + len(place))

        self.assertEqual(blamed("a  -"), {5})
        self.assertEqual(blamed("y"), {6}, "the value of the match")
        self.assertEqual(blamed("c }"), {6}, "an arm of it")
        self.assertEqual(blamed("a + b }"), {5}, "what is behind its else")
        self.assertEqual(blamed("fn f"), set())


if __name__ == "__main__":
    unittest.main()
