"""pool patch: the clean state of pool VMs on another base image, one VM at a time, never under a lease, and back when it is no good."""
import os

from keeper_world import ALL, COLD, FORCE, WAIT, Case, main, until

OLD, NEW = "debian-12", "debian-13"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGhYQ0hhdGVzdGtleXRlc3RrZXl0ZXN0a2V5dGVzdA me"


class Patch(Case):
    def setUp(self):
        super().setUp()
        self.w.start()

    def patch(self, name="", image=NEW, **values):
        return self.w.call("POOL_PATCH", name=name, image=image, **values)

    def bases(self, name):
        """(generation, image) of each life, as it was started."""
        return [(int(x.split()[1]), x.split()[2]) for x in self.w.lines("bases.log") if x.split()[0] == name]

    def await_over(self, name, timeout=10):
        until(lambda: (lambda v: not v["patch"] and v["state"] == "READY" and not v["work"])(self.w.vms()[name]), timeout)
        until(lambda: not self.w.has("before", name))
        return self.w.vms()[name]

    def patched(self, name):
        v = self.await_over(name)
        self.assertEqual((v["image"], v["patch_failed"], v["clean_of"], v["patching"]), (NEW, "", "", False), v)
        self.assertEqual(self.bases(name)[-1], (v["generation"], NEW))
        return v

    def stays(self, name, *words):
        v = self.await_over(name)
        self.assertEqual(v["image"], OLD)
        self.assertEqual(self.bases(name)[-1], (v["generation"], OLD))
        for word in words:
            self.assertIn(word, v["patch_failed"])
        return v

    def test_ready(self):
        self.w.pool_vm("one")
        self.patch("one")
        v = self.patched("one")
        self.assertEqual((v["generation"], v["attempts"], v["warm_failures"]), (2, 0, 0))
        self.assertEqual([x[2] for x in self.w.ops("PATCH")], ["1", "1"])
        self.w.await_state("one", "READY")
        self.assertEqual(self.w.lease()["generation"], 2)
        self.refused(114, "one is on debian-13 already", self.patch, "one")

    def test_cold(self):
        """Of a pool that has only just been made, too; and a VM is never started on what is to go."""
        self.w.script("START", "fail 5 agent no")
        self.w.new("one")
        self.w.call("POOL_ADD", name="one")
        until(lambda: self.w.vms()["one"]["attempts"] == 1)
        self.patch("one")
        self.w.script("START", None)
        self.patched("one")

    def test_a_lease_is_not_interrupted(self):
        self.w.pool_vm("one")
        lease = self.w.lease(name="one")["lease"]
        self.w.deliver(lease)
        self.patch("one")
        v = self.w.vms()["one"]
        self.assertEqual((v["state"], v["patch"], v["patching"]), ("DELIVERED", NEW, False))
        self.assertEqual(v["patch_waits"], "its lease has to end first")
        # A keeper that is killed meanwhile forgets nothing.
        self.w.kill()
        self.w.start()
        self.assertEqual((self.w.state("one"), self.w.vms()["one"]["patch"]), ("DELIVERED", NEW))
        self.assertEqual(self.w.ops("PATCH"), [])
        self.w.call("RELEASE", lease=lease)
        self.patched("one")
        self.assertEqual(self.bases("one"), [(1, OLD), (2, NEW)])  # not started on the old one in between

    def test_cancel(self):
        self.w.pool_vm("one")
        lease = self.w.lease(name="one")["lease"]
        self.refused(114, "no patch of one was asked for", self.patch, "one", image="")
        self.patch("one")
        self.patch("one")  # once more is no fault
        self.patch("one", image="")
        self.assertEqual(self.w.vms()["one"]["patch"], "")
        self.w.call("RELEASE", lease=lease)
        self.w.await_state("one", "READY")
        self.assertEqual(self.w.ops("PATCH"), [])
        self.assertEqual(self.bases("one"), [(1, OLD), (2, OLD)])

    def test_what_has_begun_is_not_taken_back(self):
        self.w.pool_vm("one")
        self.w.script("PATCH", "slow 400")
        self.patch("one")
        until(lambda: self.w.vms()["one"]["patching"])
        self.assertEqual(self.w.vms()["one"]["work"], "PATCH")
        self.refused(16, "is being patched to debian-13 just now", self.patch, "one", image="")
        self.refused(16, "is being patched to debian-13 just now", self.patch, "one", image=OLD)
        self.patch("one")
        self.refused(16, "being captured", self.w.call, "POOL_REMOVE", name="one")
        self.patched("one")

    def test_all_one_at_a_time(self):
        self.w.pool_vm("a", "b", "c")
        self.w.pool_vm("other", pool="second")
        self.w.script("START", "slow 150")
        self.patch(flags=ALL, pool="default")
        least, most = 3, 0
        while True:
            vms = self.w.vms()
            mine = [vms[n] for n in "abc"]
            least = min(least, sum(v["state"] == "READY" for v in mine))
            most = max(most, sum(v["patching"] for v in mine))
            if not any(v["patch"] for v in mine):
                break
        self.assertEqual((least, most), (2, 1))
        for name in "abc":
            self.assertEqual(self.patched(name)["generation"], 2)
        self.assertEqual((vms["other"]["image"], vms["other"]["generation"]), (OLD, 1))
        self.refused(114, "every VM of pool default is on debian-13 already", self.patch, flags=ALL, pool="default")
        self.refused(2, "pool nosuch has no VM", self.patch, flags=ALL, pool="nosuch")
        self.refused(22, "which VMs", self.patch)
        self.patch(flags=ALL)
        self.patched("other")

    def test_the_last_ready_one_waits(self):
        """The other one of the pool is leased: whoever comes next finds a READY VM."""
        self.w.pool_vm("a", "b")
        lease = self.w.lease(name="a")["lease"]
        self.patch("b")
        until(lambda: self.w.vms()["b"]["patch_waits"] == "it is the only READY VM of its pool")
        self.w.call("RELEASE", lease=lease)
        self.patched("b")
        self.assertEqual(self.w.vms()["a"]["image"], OLD)

    def test_others_that_are_broken_are_not_waited_for(self):
        self.w.pool_vm("a", "b")
        self.w.script("START-a", "fail 5 agent no")
        self.w.call("RELEASE", lease=self.w.lease(name="a")["lease"])
        self.w.await_state("a", "BROKEN")
        self.patch(flags=ALL)
        self.patched("b")
        a = self.w.vms()["a"]
        self.assertEqual((a["state"], a["patch"]), ("BROKEN", NEW))
        self.assertIn("it is BROKEN; 'boxery-host pool repair a' first", a["patch_waits"])
        self.w.script("START-a", None)
        self.w.call("POOL_REPAIR", name="a")
        self.patched("a")

    def test_shared_clean_state(self):
        """Each gets one of its own, whoever shares it first: it would else be pulled from under them."""
        self.w.new("one")
        self.w.call("POOL_ADD", name="one", count=3, flags=WAIT)
        lease = self.w.lease(name="one-3")["lease"]
        self.patch("one")
        self.patched("one-2")
        self.assertEqual(self.w.vms()["one"]["patch_waits"], "one-3 starts from its clean state and is patched before it")
        self.refused(16, "to be patched", self.w.call, "POOL_ADD", name="one", count=4)
        self.w.call("RELEASE", lease=lease)
        for name in ("one-3", "one"):
            self.patched(name)
        # More of the new one, beside those that have their own.
        self.w.call("POOL_ADD", name="one", count=4, flags=WAIT)
        v = self.w.vms()["one-4"]
        self.assertEqual((v["image"], v["clean_of"], self.bases("one-4")), (NEW, "one", [(1, NEW)]))

    def test_cancel_of_one_that_shares(self):
        self.w.new("one")
        self.w.call("POOL_ADD", name="one", count=2, flags=WAIT)
        lease = self.w.lease(name="one-2")["lease"]
        self.patch("one")
        self.patch("one-2", image="")
        self.assertEqual([v["patch"] for v in self.w.vms().values()], ["", ""])
        self.w.call("RELEASE", lease=lease)

    # -- failures: the old clean state, and a sentence

    def test_no_such_image(self):
        self.w.pool_vm("one")
        self.patch("one", image="nosuch")
        v = self.stays("one", "base: there is no such base image")
        self.assertEqual(v["attempts"], 0)
        self.assertFalse(self.w.has("base", "one"))
        self.patch("one")  # the next one clears the sentence
        self.patched("one")

    def test_image_that_does_not_start(self):
        self.w.pool_vm("one")
        self.w.script("START", "bad " + NEW)
        self.patch("one")
        v = self.stays("one", "agent: it does not boot")
        # Nothing of it is the VM's failure: the next start is warm, as ever.
        self.assertEqual((v["attempts"], v["warm_failures"], v["generation"]), (0, 0, 3))
        self.assertIn("one 3 warm standby", self.w.lines("starts.log"))
        self.assertIn("could not be patched to debian-13 and stays on debian-12: agent: it does not boot", self.w.log())

    def test_guest_that_dies_while_it_is_tried(self):
        self.w.pool_vm("one")
        self.w.script("START", "once dead 300")
        self.patch("one")
        self.stays("one")

    def test_the_others_are_not_tried(self):
        self.w.pool_vm("a", "b", "c")
        self.w.script("START", "bad " + NEW)
        self.patch(flags=ALL)
        self.stays("a", "agent")
        for name in "bc":
            v = self.stays(name, "not tried, since a could not be patched to debian-13")
            self.assertEqual(v["generation"], 1)

    def test_shared_clean_state_goes_back(self):
        self.w.new("one")
        self.w.call("POOL_ADD", name="one", count=2, flags=WAIT)
        self.w.script("START", "bad " + NEW)
        self.patch("one")
        self.assertEqual(self.stays("one-2", "agent")["clean_of"], "one")
        self.assertEqual(self.stays("one", "not tried")["generation"], 1)

    def test_reset_that_fails_while_it_is_tried(self):
        self.w.pool_vm("one")
        self.w.script("RESET", "fail 5 destroy no")
        self.patch("one")
        v = self.w.await_state("one", "BROKEN")
        self.assertEqual((v["image"], v["patch"], v["patch_failed"]), (OLD, "", "destroy: no"))
        self.w.script("RESET", None)
        self.w.call("POOL_REPAIR", name="one")
        self.stays("one")

    def test_without_libvirt(self):
        """Its restart is nobody's failure: the patch is done over."""
        self.w.pool_vm("one")
        self.w.script("PATCH", "once fail 111 connect no")
        self.patch("one")
        self.patched("one")
        self.assertEqual(len([x for x in self.w.ops("PATCH") if x[3] == "begin"]), 2)

    def test_removed_in_the_middle(self):
        self.w.pool_vm("one")
        self.w.script("START", "slow 500")
        self.patch("one")
        until(lambda: self.w.state("one") == "STARTING" and self.w.vms()["one"]["patching"])
        self.w.call("POOL_REMOVE", name="one", flags=FORCE)
        self.assertEqual([f for f in ("base", "before", "settings") if self.w.has(f, "one")], [])

    def test_what_cannot_be_patched(self):
        self.w.new("plain")
        self.refused(22, "not in a pool", self.patch, "plain")
        self.refused(2, "no VM", self.patch, flags=ALL)
        self.refused(22, "image name", self.patch, "plain", image="Bad/Name")
        self.refused(2, "no VM 'nosuch'", self.patch, "nosuch")

    def test_inspection_changes_nothing(self):
        """A VM that is looked at is in MAINTENANCE, too."""
        self.w.call("POOL_SET", pool="default", start=COLD)
        self.w.pool_vm("one")
        self.w.script("START", "fail 5 agent no")
        self.w.call("RELEASE", lease=self.w.lease(name="one")["lease"])
        self.w.await_state("one", "BROKEN")
        lease = self.w.lease(name="one", flags=16)["lease"]
        self.patch("one")
        self.w.script("START", None)
        v = self.w.vms()["one"]
        self.assertEqual((v["state"], v["patching"], v["patch_waits"]), ("MAINTENANCE", False, "its lease has to end first"))
        self.w.call("RELEASE", lease=lease)
        self.patched("one")


if __name__ == "__main__":
    main()
