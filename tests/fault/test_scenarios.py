#!/usr/bin/python3
"""test_scenarios.py BUILD_DIR [SCENARIO...] - what goes wrong in the field, a test for each kind of it.

One row per kind that public reports of such tools show. A row names the test that makes it happen; here it is checked that each of
those is there, and those that are nobody else's are run. With names, just these are run, wherever they are:
    test_scenarios.py build scenario_rate_limit"""
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1])
sys.argv[1] = os.path.join(BUILD, "boxery-runners")
WANTED, sys.argv[2:] = sys.argv[2:], []
sys.path.insert(0, HERE)
import test_service as base  # noqa: E402
from test_service import jobs_done, one_job_done, scenario  # noqa: E402
from test_service_admin import HEAD, ORG  # noqa: E402

base.SCENARIOS.clear()


@scenario()
def scenario_updates_itself(w):
    """The listener ends to update itself: an outcome of its own, a reset, and the job is done by the next one."""
    w.behaviour = "never-connect"
    w.console("vm1", "boxery: listener exited 3\n")
    w.after(8, lambda: [w.stopped("vm1", w.vms["vm1"]["generation"])])
    w.job()
    w.start()
    w.wait("the word", lambda: "updated itself" in w.outcomes(), 120)
    w.behaviour = "work"
    one_job_done(w)


@scenario(vms=2, guest=(0.3, 2, 0.2))
def scenario_takes_anothers_job(w):
    """A lease is bound to no job: two runners, two jobs, whichever takes which, and none waits for the one it was made for."""
    first = w.job(seconds=4, name="first")
    w.start()
    w.wait("a lease", lambda: w.leases)
    with w.lock:
        first["status"] = "waiting"  # GitHub holds it back: the runner made for it gets the second one
    w.job(seconds=4, name="second")
    time.sleep(8)
    with w.lock:
        first["status"] = "queued"
    w.wait("both", lambda: jobs_done(w), 90)
    w.wait_settled()
    assert sorted(w.outcomes()) == ["succeeded"] * 2, w.outcomes()


@scenario()
def scenario_group_does_not_allow_the_repository(w):
    w.write_yaml(HEAD + "runners:\n" + ORG + "    repos: [one, secret]\n")
    w.start()
    w.wait("the line", lambda: "acme: runner group few does not allow acme/secret: its jobs will wait for ever" in w.text())
    assert "does not allow acme/secret" in w.control("STATUS", document=True)["entries"][0]["why"]
    assert w.text().count("does not allow") == 1
    time.sleep(6)
    assert w.text().count("error") == 1, "once, not each time"


S, A, K, CLOCK = "test_service.py", "test_service_admin.py", "test_keeper_", "test_service_clock.py"
GITHUB, SCOPES = "../contract/test_github.py", "../contract/test_github_scopes.py"
REAL, HOSTS, HOST, WARM, BUILD_IT, RUN_JOB, DELIVER = ("test_service_real.py", "test_service_hosts.py", K + "host.py", "test_vm_warm.py",
                                                       "test_build.py", "../emulator/test_run_job.py", "../unit/test_deliver.py")
DRIVER = "tests/fault/boxery-vm-testdriver"
# kind -> the tests that make it happen: (file, name).
ROWS = {
    "scenario_lost_answer": [(S, "registered_but_the_answer_is_lost"), (S, "registered_late"), (S, "name_taken"), (REAL, "mint_409"),
                             (GITHUB, "test_registered_all_the_same")],
    "scenario_mint_503": [(S, "server_errors"), (REAL, "mint_503")],
    "scenario_idle_runner_vanishes": [(S, "gone_runner_is_replaced"), (REAL, "vanishes")],
    "scenario_busy_runner_is_not_killed": [(S, "busy_in_the_last_moment"), (GITHUB, "test_delete_busy")],
    "scenario_listens_for_ever": [(S, "idle_runner"), (REAL, "idles"), (A, "a_lost_runner_becomes_overdue")],
    "scenario_config_is_used_once": [(S, "killed_at"), (S, "guest_dies_before_the_job"), (REAL, "everybody_killed_in_mid_job")],
    "scenario_session_conflict": [(A, "a_session_conflict")],
    "scenario_version_deprecated": [(A, "the_runner_is_too_old"), (GITHUB, "test_deprecation"), (REAL, "until_when_github_takes_the_runner"),
                                    (CLOCK, "the_runners_age_is_looked_at_daily"),
                                    (HOST, "test_an_old_runner")],
    "scenario_updates_itself": [],
    "scenario_offline_registrations": [(S, "guest_dies_in_job"), (S, "foreign_runners"), (REAL, "foreign_runners_stay")],
    "scenario_endless_minting": [(S, "no_endless_minting"), (REAL, "never_connects")],
    "scenario_power_cut": [(K + "start.py", "test_each_state"), (K + "start.py", "test_host_was_restarted"),
                           (K + "kill.py", "test_table"), ("test_service_storm.py", "storm"), (K + "life.py", "test_short_outage_breaks_nothing"),
                           ("test_vm_driver.py", "test_killed_in_the_middle"), (REAL, "everybody_killed_in_mid_job")],
    "scenario_stuck_unit": [(K + "kill.py", "test_removal"), (K + "life.py", "test_failing_resets_end_in_broken_and_repair"),
                            (K + "life.py", "test_removal_of_broken"), ("test_uninstall.py", "test_again_after_a_failure")],
    "scenario_restart_forgets": [(S, "killed_in_mid_job"), (S, "killed_and_the_job_ends_meanwhile"), (K + "start.py", "test_each_state")],
    "scenario_nothing_is_started": [(S, "empty_pool"), (K + "start.py", "test_says_why_none_came_up"),
                                    (K + "start.py", "test_bad_settings_are_refused"), (HOST, "test_the_image_folder"),
                                    (HOST, "test_the_right_to_write_there"), (HOST, "test_the_network_or_kvm"), (HOST, "test_libvirt"),
                                    (HOST, "test_a_program"), (HOST, "test_no_keeper_can_start")],
    "scenario_short_life": [(K + "life.py", "test_short_lives_end_in_broken")],
    "scenario_takes_anothers_job": [(S, "a_slow_runner_is_not_doubled")],
    "scenario_cancelled_before_pickup": [(S, "idle_runner"), (REAL, "idles")],
    "scenario_rate_limit": [(S, "rate_limited"), (S, "limited_while_a_job_runs"), (REAL, "rate_limit"), (SCOPES, "test_kinds_of_limit")],
    "scenario_refusals_told_apart": [(GITHUB, "test_credential"), (GITHUB, "test_permission"), (GITHUB, "test_limits"),
                                     (GITHUB, "test_absent"), (S, "credential")],
    "scenario_one_guest_stops_nobody": [(S, "a_slow_delivery_delays_nobody"), (K + "life.py", "test_resets_do_not_wait_for_hanging_starts"),
                                       (K + "pools.py", "test_hanging_everything"), (DELIVER, "test_silence"), (DELIVER, "test_drip")],
    "scenario_failed_vm_is_seen_at_once": [(S, "guest_dies_in_job"), (REAL, "guest_destroyed_in_job"),
                                           (K + "life.py", "test_dead_before_its_start_has_ended")],
    "scenario_job_in_the_last_second": [(S, "busy_in_the_last_moment")],
    "scenario_revert_that_did_not": [(K + "life.py", "test_failing_starts_end_in_broken_and_repair"),
                                     (K + "life.py", "test_failures_after_the_commit_reset"), ("../vm/test_vm.py", "test_life_event_and_reset"),
                                     ("test_vm_driver.py", "test_dirty_or_dead"), (WARM, "test_restore_or_check_fails")],
    "scenario_full_disk": [(HOST, "test_nothing_is_started_on_a_full_disk"), (HOST, "test_room"), (WARM, "test_a_guest_with_a_full_disk"),
                           ("../vm/test_pool.py", "test_full_disk_ends_a_job"), (K + "database.py", "test_full_disk")],
    "scenario_network_not_ready": [(REAL, "network_not_ready"), (S, "never_connected")],
    "scenario_misspelt_label": [(A, "status_and_explain")],
    "scenario_group_does_not_allow_the_repository": [(A, "an_organization_without_its_group")],
    "scenario_missing_permission": [(GITHUB, "test_permission")],
    "scenario_other_hosts": [(SCOPES, "test_host_table"), (SCOPES, "test_enterprise_server"), (GITHUB, "test_path_prefix_and_plain_loopback")],
    "scenario_proxy_and_private_ca": [(SCOPES, "test_proxy"), (GITHUB, "test_wrong_ca"), (RUN_JOB, "test_through_a_proxy"),
                                      (RUN_JOB, "test_an_authority_the_image_does_not_have"), (BUILD_IT, "test_proxy")],
}


def program_of(path, name):
    """How one test is run by name, and with what environment."""
    whole = os.path.normpath(os.path.join(HERE, path))
    with open(whole) as f:
        text = f.read()
    owner = [m for m in re.findall(r"^class (\w+)|    def (%s)\b" % name, text, re.M) if m[0] or m[1]]
    if path in (S, A):
        return [whole, os.path.join(BUILD, "boxery-runners"), name], {}
    if path in (REAL, HOSTS, CLOCK):
        return [whole, BUILD, name], {}
    where = next((owner[i - 1][0] for i, m in enumerate(owner) if m[1] and i), "")
    if "contract" in path:
        return [whole, os.path.join(BUILD, "boxery-github"), where + "." + name], {}
    programs = {BUILD_IT: "boxery-build", DELIVER: "boxery-deliver", WARM: DRIVER, "test_vm_driver.py": DRIVER}
    if path in programs:
        return [whole, os.path.join(BUILD, programs[path]), where + "." + name], {}
    env = {"BOXERY_FAULT_BINARIES": os.path.join(BUILD, "tests", "fault"), "BOXERY_HOST": os.path.join(BUILD, "boxery-host"),
           "BOXERY_BUILD": BUILD}
    return [whole, where + "." + name], env


def missing():
    for kind, tests in ROWS.items():
        own = any(s[0] == kind for s in base.SCENARIOS)
        if not tests and not own:
            yield "%s: no test" % kind
        for path, name in tests:
            with open(os.path.join(HERE, path)) as f:
                if not re.search(r"^ *def %s\(" % name, f.read(), re.M):
                    yield "%s: %s has no %s" % (kind, path, name)
    for name, _, _ in base.SCENARIOS:
        if name not in ROWS:
            yield "%s is no row" % name


def run_elsewhere(kind):
    failed = 0
    for path, name in ROWS[kind]:
        command, env = program_of(path, name)
        done = subprocess.run(["/usr/bin/python3", *command], env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=900)
        print("%s %s: %s %s" % ("ok  " if done.returncode == 0 else "FAIL", kind, path, name), flush=True)
        if done.returncode != 0:
            failed += 1
            print(done.stdout)
    return failed


def main():
    faults = list(missing())
    print("\n".join(faults))
    unknown = [w for w in WANTED if w not in ROWS]
    if faults or unknown:
        return "no such scenario: %s" % ", ".join(unknown) if unknown else 1
    failed = sum(run_elsewhere(kind) for kind in WANTED)
    base.SCENARIOS[:] = [s for s in base.SCENARIOS if not WANTED or s[0] in WANTED]
    return 1 if (base.main() if base.SCENARIOS else 0) or failed else 0


if __name__ == "__main__":
    sys.exit(main())
