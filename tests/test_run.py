"""`tests/run.py`: the selection of tests, and the results that it reads from their output."""

import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import run

PASSED = """
running 3 tests
test a::forwards ... ok
SKIP a::needs_root: no network namespace can be made
test a::needs_root ... ok
test a::long ... ignored, takes an hour

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""
FAILED = """
running 2 tests
test a::forwards ... ok
test a::drops ... FAILED

failures:

---- a::drops stdout ----
expected 3, found 4

failures:
    a::drops

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""


def job(count=None):
    return run.Job("sidestep::live", [], "./dev test sidestep::live", count=count)


class Counts(unittest.TestCase):
    def test_a_skipped_test_is_not_counted_as_passed(self):
        counts = run.count_rust(job(), PASSED, 0)
        self.assertEqual(counts.passed, 1)
        self.assertEqual(counts.failed, [])
        self.assertEqual(
            counts.skipped,
            ["a::needs_root: no network namespace can be made", "a::long: ignored takes an hour"],
        )

    def test_a_failed_test_is_named_with_its_output(self):
        counts = run.count_rust(job(), FAILED, 101)
        self.assertEqual((counts.passed, counts.failed), (1, ["a::drops"]))
        self.assertIn("expected 3, found 4", run.failure_of(FAILED))

    def test_a_program_that_crashed_is_a_failure(self):
        counts = run.count_rust(job(), "running 1 test\n", 139)
        self.assertEqual(counts.failed, ["sidestep::live"])

    def test_a_command_that_cannot_run_here_is_skipped(self):
        self.assertEqual(run.count_status(job(), "SKIP it: no kernel\n", 77).skipped, ["it: no kernel"])


class Selection(unittest.TestCase):
    def test_every_command_has_a_test_with_the_program_that_ships(self):
        program = run.TARGET / "debug/sidestep"
        shown = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
        commands = set(re.findall(r"(?m)^  ([a-z]+) {2,}[A-Z]", shown)) - {"help"}
        self.assertGreater(len(commands), 15)
        covered = set(" ".join(run.Groups().lists["smoke"].values()).split())
        self.assertEqual(covered, commands)

    def test_names_in_two_libraries_select_the_option_lib_once(self):
        known = {"sidestep-fib::lib": ["one"], "sidestep-datapath::lib": ["two"], "sidestep::live": ["three"]}
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(run, "TARGET", Path(folder)):
            (run.TARGET / "dev-tests.json").write_text(json.dumps(known), encoding="utf-8")
            self.assertEqual(run.targets_of(run.known_programs(["one", "two", "three"])), ["--lib", "--test=live"])

    def test_a_file_names_its_tests(self):
        for word, expected in [
            ("crates/cli/tests/live/icmp.rs", "sidestep::live::icmp::"),
            ("./crates/fib/tests/stress.rs", "sidestep-fib::stress::"),
            ("crates/model/src/config.rs", "sidestep-model::lib::config::"),
            ("vectors/end_x.yaml", "::end_x::"),
            ("end_dt6_usd", "end_dt6_usd"),
        ]:
            self.assertEqual(run.pattern_of(word), expected)

    def test_each_tier_holds_the_one_below(self):
        groups = run.Groups()
        for name, tiers in [
            ("sidestep-model::lib::config::tests::x", ["check", "test", "all"]),
            ("sidestep::live::icmp::x", ["test", "all"]),
            ("sidestep::live::soak::x", ["all"]),
            ("kernel::oldest", ["release", "all"]),
            ("kernel::newest", ["all"]),
        ]:
            self.assertEqual([tier for tier in run.TIERS if groups.in_tier(tier, name)], tiers)

    def test_nothing_runs_beside_a_test_that_measures_time(self):
        program = run.Program("sidestep", "live", "/live", run.ROOT, ["flaps::a", "icmp::b", "icmp::c"])
        jobs = {job.name: job for job in run.jobs_of(program, "all", [], run.Groups())}
        self.assertTrue(jobs["sidestep::live::flaps::a"].alone)
        self.assertFalse(jobs["sidestep::live::icmp::b"].alone)
        self.assertEqual(jobs["sidestep::live::icmp::c"].command, ["/live", "--exact", "icmp::c"])

    def test_promised_times_are_measured_with_the_program_that_ships_only(self):
        program = run.Program("sidestep", "live", "/live", run.ROOT, ["follow::a", "domain::b", "icmp::c"])
        for tier, names in [
            ("test", ["sidestep::live::domain::b", "sidestep::live::icmp::c"]),
            ("release", ["release::sidestep::live::follow::a", "release::sidestep::live::domain::b"]),
        ]:
            jobs = list(run.jobs_of(program, tier, [], run.Groups()))
            self.assertEqual([job.name for job in jobs], names)
            released = [job.environment.get("SIDESTEP") for job in jobs]
            self.assertEqual(released, [str(run.ROUTER) if tier == "release" else None] * 2)


if __name__ == "__main__":
    unittest.main()
