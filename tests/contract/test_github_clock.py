#!/usr/bin/python3
"""boxery-github with an App, on a host whose wall clock is set, both ways and by minutes to weeks, while the boot clock goes on: a
token lives as long as GitHub gives it, not as long as the wall clock says, and a new one is had whatever that shows.

usage: test_github_clock.py BOXERY_GITHUB WALK_CLOCK_LIBRARY     (BOXERY_SEED: another sequence)"""
import os
import random
import sys
import unittest

CLOCK = os.path.abspath(sys.argv.pop(2)) if len(sys.argv) > 2 else ""
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from github_case import LABELS  # noqa: E402
from test_github_scopes import Apps as AppCase  # noqa: E402
from virtual_clock import Clock  # noqa: E402

SEED = int(os.environ.get("BOXERY_SEED", "11"))
DAY = 86400
ROUNDS = 40
TOKEN_S, MARGIN_S = 3600, 300


class Clocks(AppCase):
    def setUp(self):
        super().setUp()
        self.gh.close()
        self.passed = 0
        self.clock = Clock(self.dir + "/clock")
        self.gh = self.start(BOXERY_TEST_CLOCK=self.clock.path, LD_PRELOAD=CLOCK)

    def move(self, seconds, wrong_by):
        """Time passes for all; our wall clock is off by so much."""
        self.passed += seconds
        self.emu.settings(clock_skew=self.passed)
        self.clock.set_wall(self.passed + wrong_by)
        self.clock.set(self.passed)

    def checks(self, what):
        """(taken, refused) statements; nothing else may have been refused."""
        tried = [r["status"] for r in self.exchanges()]
        refused = [r["path"] for r in self.seen() if r["status"] == 401 and "access_tokens" not in r["path"]]
        self.assertEqual(refused, [], what)
        return tried.count(201), tried.count(401)

    def test_set_both_ways(self):
        for wrong_by in (0, 3600, -3600, 20 * DAY, -20 * DAY, 90, -90, 0):
            self.move(60, wrong_by)
            self.ok("REPOSITORY")
        self.assertEqual(self.checks("within the first token's hour"), (1, 0))
        for n, wrong_by in enumerate((0, 3600, 3600, -3600, 20 * DAY, -20 * DAY, 20, 0), 2):
            self.move(TOKEN_S - MARGIN_S + 1, wrong_by)
            self.ok("REPOSITORY")
            taken, refused = self.checks(wrong_by)
            self.assertEqual(taken, n, "a token an hour")
            self.assertLessEqual(refused, taken, wrong_by)

    def test_at_random(self):
        r = random.Random(SEED)
        wrong_by, renewals = 0, 0
        for i in range(ROUNDS):
            what = "seed %d, round %d" % (SEED, i)
            if r.random() < 0.6:
                wrong_by = r.choice([0, 1, -1]) * 60 * (20 * DAY / 60) ** r.random()
            self.move(r.uniform(1, 1800), wrong_by)
            self.ok("REPOSITORY")
            if i % 6 == 5:
                reply, fds = self.call("MINT", runner_name="boxery-h1-%d" % i, labels=LABELS)
                self.assertEqual(reply["code"], 0, (what, reply["text"]))
                os.close(fds[0])
                self.ok("DELETE", runner_id=reply["runner_id"])
            taken, refused = self.checks(what)
            renewals = self.passed / (TOKEN_S - MARGIN_S)
            self.assertLessEqual(taken, renewals + 1, what)
            self.assertLessEqual(refused, taken, what)
        self.assertGreater(renewals, 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + ["Clocks.test_set_both_ways", "Clocks.test_at_random"])
