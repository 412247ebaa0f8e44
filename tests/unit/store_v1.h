#ifndef BOXERY_TESTS_UNIT_STORE_V1_H
#define BOXERY_TESTS_UNIT_STORE_V1_H
/* A database as version 1 of the schema made it: a VM in every state, leases open and closed, one VM removed. A dump, never
 * to be edited. */
static const char *const store_v1[] = {
	("CREATE TABLE events (\n"
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
	"  vm_id INTEGER REFERENCES vms (id) ON DELETE SET NULL,\n"
	"  wall_us INTEGER NOT NULL,\n"
	"  boot_us INTEGER NOT NULL,\n"
	"  vm TEXT NOT NULL CHECK (length(vm) <= 40),\n"
	"  lease TEXT NOT NULL CHECK (length(lease) <= 32),\n"
	"  generation INTEGER NOT NULL CHECK (generation >= 0),\n"
	"  kind TEXT NOT NULL CHECK (length(kind) BETWEEN 1 AND 31),\n"
	"  text TEXT NOT NULL CHECK (length(text) <= 511),\n"
	"  took_us INTEGER NOT NULL CHECK (took_us >= 0)\n"
	") STRICT;"),
	"INSERT INTO \"events\" VALUES(1,1,1795999623463783,6796195899,'plain','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(2,2,1795999623469909,6796202025,'cold','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(3,2,1795999623474422,6796206538,'cold','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(4,2,1795999623485127,6796217243,'cold','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(5,2,1795999623490131,6796222246,'cold','',0,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(6,3,1795999623497717,6796229834,'starting','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(7,3,1795999623499983,6796232099,'starting','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(8,3,1795999623510178,6796242294,'starting','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(9,3,1795999623515108,6796247224,'starting','',0,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(10,3,1795999623535210,6796267326,'starting','',1,'START','COLD -> STARTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(11,4,1795999623537254,6796269370,'ready','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(12,4,1795999623539592,6796271708,'ready','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(13,4,1795999623552266,6796284382,'ready','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(14,4,1795999623559602,6796291717,'ready','',0,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(15,4,1795999623600107,6796332223,'ready','',1,'START','COLD -> STARTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(16,4,1795999623608065,6796340182,'ready','',1,'STARTED','STARTING -> READY: step: reason',0);",
	"INSERT INTO \"events\" VALUES(17,5,1795999623610119,6796342235,'leased','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(18,5,1795999623612692,6796344808,'leased','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(19,5,1795999623613562,6796345678,'leased','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(20,5,1795999623614026,6796346141,'leased','',0,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(21,5,1795999623630200,6796362316,'leased','',1,'START','COLD -> STARTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(22,5,1795999623634337,6796366453,'leased','',1,'STARTED','STARTING -> READY: step: reason',0);",
	"INSERT INTO \"events\" VALUES(23,5,1795999623642576,6796374691,'leased','c952aab5ff9d4ecc613c41596c153c53',1,'LEASE','READY -> LEASED: step: reason',0);",
	"INSERT INTO \"events\" VALUES(24,6,1795999623645360,6796377476,'delivered','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(25,6,1795999623656823,6796388939,'delivered','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(26,6,1795999623660124,6796392240,'delivered','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(27,6,1795999623665595,6796397711,'delivered','',0,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(28,6,1795999623670019,6796402135,'delivered','',1,'START','COLD -> STARTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(29,6,1795999623676274,6796408390,'delivered','',1,'STARTED','STARTING -> READY: step: reason',0);",
	"INSERT INTO \"events\" VALUES(30,6,1795999623678748,6796410864,'delivered','c830fe630f3b61329f8fd30e4faf5e3b',1,'LEASE','READY -> LEASED: step: reason',0);",
	"INSERT INTO \"events\" VALUES(31,6,1795999623683447,6796415563,'delivered','c830fe630f3b61329f8fd30e4faf5e3b',1,'DELIVER','LEASED -> DELIVERED: step: reason',0);",
	"INSERT INTO \"events\" VALUES(32,7,1795999623690353,6796422469,'busy','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(33,7,1795999623692407,6796424522,'busy','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(34,7,1795999623698310,6796430426,'busy','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(35,7,1795999623707744,6796439859,'busy','',0,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(36,7,1795999623712029,6796444145,'busy','',1,'START','COLD -> STARTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(37,7,1795999623713309,6796445425,'busy','',1,'STARTED','STARTING -> READY: step: reason',0);",
	"INSERT INTO \"events\" VALUES(38,7,1795999623715602,6796447717,'busy','db005c7ae45f64cb439df09f18929bbb',1,'LEASE','READY -> LEASED: step: reason',0);",
	"INSERT INTO \"events\" VALUES(39,7,1795999623717779,6796449894,'busy','db005c7ae45f64cb439df09f18929bbb',1,'DELIVER','LEASED -> DELIVERED: step: reason',0);",
	"INSERT INTO \"events\" VALUES(40,7,1795999623720456,6796452572,'busy','db005c7ae45f64cb439df09f18929bbb',1,'JOB_SEEN','DELIVERED -> BUSY: step: reason',0);",
	"INSERT INTO \"events\" VALUES(41,8,1795999623723136,6796455252,'resetting','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(42,8,1795999623736112,6796468228,'resetting','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(43,8,1795999623745799,6796477915,'resetting','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(44,9,1795999623760531,6796492648,'broken','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(45,9,1795999623762861,6796494977,'broken','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(46,9,1795999623768206,6796500323,'broken','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(47,9,1795999623776102,6796508218,'broken','',0,'RESET_FAILED','RESETTING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(48,9,1795999623786167,6796518283,'broken','',0,'RESET_FAILED','RESETTING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(49,9,1795999623791879,6796523994,'broken','',0,'RESET_FAILED','RESETTING -> BROKEN: step: reason',0);",
	"INSERT INTO \"events\" VALUES(50,10,1795999623798765,6796530881,'maintenance','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(51,10,1795999623803068,6796535184,'maintenance','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(52,10,1795999623809465,6796541581,'maintenance','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(53,10,1795999623814118,6796546233,'maintenance','',0,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(54,10,1795999623817251,6796549367,'maintenance','',0,'MAINTAIN','COLD -> MAINTENANCE: step: reason',0);",
	"INSERT INTO \"events\" VALUES(55,11,1795999623822547,6796554663,'adding','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(56,11,1795999623823147,6796555263,'adding','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(57,NULL,1795999623823465,6796555581,'gone','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(58,NULL,1795999623824173,6796556289,'gone','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(59,NULL,1795999623838106,6796570223,'gone','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(60,NULL,1795999623844721,6796576837,'gone','',0,'RESET_FAILED','RESETTING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(61,NULL,1795999623846960,6796579076,'gone','',0,'RESET_FAILED','RESETTING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(62,NULL,1795999623849794,6796581909,'gone','',0,'RESET_FAILED','RESETTING -> BROKEN: step: reason',0);",
	"INSERT INTO \"events\" VALUES(63,13,1795999623856826,6796588942,'closed','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(64,13,1795999623858177,6796590293,'closed','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(65,13,1795999623862160,6796594276,'closed','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(66,13,1795999623862740,6796594855,'closed','',0,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(67,13,1795999623866152,6796598268,'closed','',1,'START','COLD -> STARTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(68,13,1795999623866991,6796599107,'closed','',1,'STARTED','STARTING -> READY: step: reason',0);",
	"INSERT INTO \"events\" VALUES(69,13,1795999623872067,6796604182,'closed','250278d3a0914af51e19713b22929bad',1,'LEASE','READY -> LEASED: step: reason',0);",
	"INSERT INTO \"events\" VALUES(70,13,1795999623876365,6796608481,'closed','250278d3a0914af51e19713b22929bad',1,'RELEASE','LEASED -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(71,13,1795999623877292,6796609408,'closed','250278d3a0914af51e19713b22929bad',1,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(72,14,1795999623878105,6796610221,'closing','',0,'NEW','PLAIN',0);",
	"INSERT INTO \"events\" VALUES(73,14,1795999623882394,6796614510,'closing','',0,'ADD','PLAIN -> ADDING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(74,14,1795999623888691,6796620808,'closing','',0,'MAINTAINED','ADDING -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(75,14,1795999623891053,6796623169,'closing','',0,'RESET_DONE','RESETTING -> COLD: step: reason',0);",
	"INSERT INTO \"events\" VALUES(76,14,1795999623900424,6796632541,'closing','',1,'START','COLD -> STARTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(77,14,1795999623905667,6796637783,'closing','',1,'STARTED','STARTING -> READY: step: reason',0);",
	"INSERT INTO \"events\" VALUES(78,14,1795999623910386,6796642501,'closing','76fedf24e0f39833c54c1110e9f0888e',1,'LEASE','READY -> LEASED: step: reason',0);",
	"INSERT INTO \"events\" VALUES(79,14,1795999623915563,6796647679,'closing','76fedf24e0f39833c54c1110e9f0888e',1,'DELIVER','LEASED -> DELIVERED: step: reason',0);",
	"INSERT INTO \"events\" VALUES(80,14,1795999623921329,6796653445,'closing','76fedf24e0f39833c54c1110e9f0888e',1,'STOPPED','DELIVERED -> RESETTING: step: reason',0);",
	"INSERT INTO \"events\" VALUES(81,NULL,1795999623927335,6796659451,'gone','',0,'REMOVED','BROKEN',0);",
	("CREATE TABLE leases (\n"
	"  seq INTEGER PRIMARY KEY AUTOINCREMENT,\n"
	"  id TEXT NOT NULL UNIQUE CHECK (length(id) = 32 AND id NOT GLOB '*[^0-9a-f]*'),\n"
	"  vm_id INTEGER REFERENCES vms (id) ON DELETE SET NULL,\n"
	"  vm TEXT NOT NULL CHECK (length(vm) BETWEEN 1 AND 40),\n"
	"  pool TEXT NOT NULL CHECK (length(pool) BETWEEN 1 AND 40),\n"
	"  holder TEXT NOT NULL CHECK (length(holder) BETWEEN 1 AND 47),\n"
	"  scope TEXT NOT NULL CHECK (length(scope) <= 140),\n"
	"  runner_name TEXT NOT NULL UNIQUE CHECK (length(runner_name) BETWEEN 1 AND 64),\n"
	"  generation INTEGER NOT NULL CHECK (generation >= 1),\n"
	"  registration TEXT NOT NULL CHECK (registration IN ('none', 'planned', 'made', 'gone')),\n"
	"  runner_id INTEGER NOT NULL CHECK (runner_id >= 0),\n"
	"  open INTEGER NOT NULL CHECK (open IN (0, 1)),\n"
	"  bound INTEGER NOT NULL CHECK (bound IN (0, 1)),\n"
	"  opened_wall_us INTEGER NOT NULL,\n"
	"  delivered_wall_us INTEGER NOT NULL,\n"
	"  closed_wall_us INTEGER NOT NULL,\n"
	"  closed_order INTEGER NOT NULL,\n"
	"  expires_boot_us INTEGER NOT NULL,\n"
	"  boot_id TEXT NOT NULL CHECK (length(boot_id) <= 36),\n"
	"  job TEXT NOT NULL CHECK (length(job) <= 127),\n"
	"  outcome TEXT NOT NULL CHECK (length(outcome) <= 63),\n"
	"  outcome_final INTEGER NOT NULL CHECK (outcome_final IN (0, 1)),\n"
	"  end_reason TEXT NOT NULL CHECK (length(end_reason) <= 511),\n"
	"  CHECK (open = 0 OR vm_id IS NOT NULL),\n"
	"  CHECK (open = 1 OR (end_reason <> '' AND closed_order > 0)),\n"
	"  CHECK (registration <> 'made' OR runner_id > 0)\n"
	") STRICT;"),
	"INSERT INTO \"leases\" VALUES(1,'c952aab5ff9d4ecc613c41596c153c53',5,'leased','default','tester','octo/box','boxery-750cc399-a261a1c0ff1f4e73',1,'none',0,1,0,1795999623642538,0,0,0,6856374654,'00000000-0000-0000-0000-000000000001','','',0,'');",
	"INSERT INTO \"leases\" VALUES(2,'c830fe630f3b61329f8fd30e4faf5e3b',6,'delivered','default','tester','octo/box','boxery-750cc399-3e8ac9bd9511057a',1,'none',0,1,0,1795999623678475,1795999623683414,0,0,6856410590,'00000000-0000-0000-0000-000000000001','','',0,'');",
	"INSERT INTO \"leases\" VALUES(3,'db005c7ae45f64cb439df09f18929bbb',7,'busy','default','tester','octo/box','boxery-750cc399-ecadde1912337a42',1,'made',42,1,0,1795999623715568,1795999623717752,0,0,6856447683,'00000000-0000-0000-0000-000000000001','build','',0,'');",
	"INSERT INTO \"leases\" VALUES(4,'250278d3a0914af51e19713b22929bad',13,'closed','default','tester','octo/box','boxery-750cc399-0964b3f26f61b425',1,'none',0,0,0,1795999623872030,0,1795999623877213,1,6856604145,'00000000-0000-0000-0000-000000000001','','',0,'RELEASE: reason');",
	"INSERT INTO \"leases\" VALUES(5,'76fedf24e0f39833c54c1110e9f0888e',14,'closing','default','tester','octo/box','boxery-750cc399-3e6511f6ab10c8f8',1,'none',0,1,0,1795999623910347,1795999623915535,0,0,6856642463,'00000000-0000-0000-0000-000000000001','','',0,'STOPPED: reason');",
	("CREATE TABLE meta (\n"
	"  id INTEGER PRIMARY KEY CHECK (id = 1),\n"
	"  host_id TEXT NOT NULL CHECK (length(host_id) = 8 AND host_id NOT GLOB '*[^0-9a-f]*')\n"
	") STRICT;"),
	"INSERT INTO \"meta\" VALUES(1,'750cc399');",
	("CREATE TABLE vms (\n"
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
	"  name TEXT NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 40 AND name NOT GLOB '*[^0-9a-z-]*'),\n"
	"  pool TEXT NOT NULL CHECK (length(pool) <= 40),\n"
	"  image TEXT NOT NULL CHECK (length(image) <= 40),\n"
	"  slot INTEGER NOT NULL UNIQUE CHECK (slot BETWEEN 0 AND 999),\n"
	"  cpus INTEGER NOT NULL CHECK (cpus BETWEEN 0 AND 4294967295),\n"
	"  memory_mib INTEGER NOT NULL CHECK (memory_mib BETWEEN 0 AND 4294967295),\n"
	"  disk_gib INTEGER NOT NULL CHECK (disk_gib BETWEEN 0 AND 4294967295),\n"
	"  state TEXT NOT NULL CHECK (state IN ('PLAIN', 'COLD', 'STARTING', 'READY', 'LEASED', 'DELIVERED', "
	"'BUSY', 'RESETTING', 'BROKEN', 'MAINTENANCE', 'ADDING')),\n"
	"  generation INTEGER NOT NULL CHECK (generation >= 0),\n"
	"  attempts INTEGER NOT NULL CHECK (attempts BETWEEN 0 AND 2147483647),\n"
	"  step TEXT NOT NULL CHECK (length(step) <= 31),\n"
	"  reason TEXT NOT NULL CHECK (length(reason) <= 511),\n"
	"  host_key TEXT NOT NULL CHECK (length(host_key) <= 511),\n"
	"  address TEXT NOT NULL CHECK (length(address) <= 45),\n"
	"  since_event INTEGER NOT NULL,\n"
	"  since_boot_us INTEGER NOT NULL,\n"
	"  since_wall_us INTEGER NOT NULL,\n"
	"  since_boot_id TEXT NOT NULL CHECK (length(since_boot_id) <= 36),\n"
	"  CHECK ((state = 'PLAIN') = (pool = ''))\n"
	") STRICT;"),
	"INSERT INTO \"vms\" VALUES(1,'plain','','debian',0,2,2048,20,'PLAIN',0,0,'','','','',1,6796196112,1795999623463996,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(2,'cold','default','debian',1,2,2048,20,'COLD',0,0,'','','','',5,6796222127,1795999623490011,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(3,'starting','default','debian',2,2,2048,20,'STARTING',1,0,'','','','',10,6796267319,1795999623535203,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(4,'ready','default','debian',3,2,2048,20,'READY',1,0,'','','','',16,6796340178,1795999623608062,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(5,'leased','default','debian',4,2,2048,20,'LEASED',1,0,'','','','',23,6796374522,1795999623642406,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(6,'delivered','default','debian',5,2,2048,20,'DELIVERED',1,0,'','','','',31,6796415370,1795999623683255,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(7,'busy','default','debian',6,2,2048,20,'BUSY',1,0,'','','','',40,6796452568,1795999623720453,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(8,'resetting','default','debian',7,2,2048,20,'RESETTING',0,0,'','','','',43,6796477911,1795999623745796,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(9,'broken','default','debian',8,2,2048,20,'BROKEN',0,3,'step','reason','','',49,6796523984,1795999623791868,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(10,'maintenance','default','debian',9,2,2048,20,'MAINTENANCE',0,0,'','','','',54,6796549362,1795999623817247,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(11,'adding','default','debian',10,2,2048,20,'ADDING',0,0,'','','','',56,6796555260,1795999623823145,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(13,'closed','default','debian',12,2,2048,20,'COLD',1,0,'','','','',71,6796609328,1795999623877212,'00000000-0000-0000-0000-000000000001');",
	"INSERT INTO \"vms\" VALUES(14,'closing','default','debian',13,2,2048,20,'RESETTING',1,0,'','','','',80,6796653429,1795999623921313,'00000000-0000-0000-0000-000000000001');",
	"CREATE INDEX vms_ready ON vms (pool, since_event) WHERE state = 'READY';",
	("CREATE TRIGGER vms_generation BEFORE UPDATE OF generation ON vms WHEN NEW.generation < OLD.generatio"
	"n\n"
	"  BEGIN SELECT RAISE(ABORT, 'a generation never goes back'); END;"),
	"CREATE UNIQUE INDEX leases_one_open ON leases (vm_id) WHERE open = 1;",
	"CREATE UNIQUE INDEX leases_one_per_life ON leases (vm_id, generation) WHERE vm_id IS NOT NULL;",
	"CREATE INDEX leases_closed ON leases (closed_order);",
	("CREATE TRIGGER leases_delivered BEFORE UPDATE OF delivered_wall_us ON leases WHEN OLD.delivered_wall"
	"_us <> 0\n"
	"  BEGIN SELECT RAISE(ABORT, 'a life is delivered to once'); END;"),
	("CREATE TRIGGER leases_reopened BEFORE UPDATE OF open ON leases WHEN OLD.open = 0 AND NEW.open = 1\n"
	"  BEGIN SELECT RAISE(ABORT, 'a closed lease stays closed'); END;"),
	"CREATE INDEX events_vm_id ON events (vm_id, id);",
	"CREATE INDEX events_vm ON events (vm, id);",
	"CREATE INDEX events_lease ON events (lease, id) WHERE lease <> '';",
	"DELETE FROM \"sqlite_sequence\";",
	"INSERT INTO \"sqlite_sequence\" VALUES('events',81);",
	"INSERT INTO \"sqlite_sequence\" VALUES('vms',14);",
	"INSERT INTO \"sqlite_sequence\" VALUES('leases',5);",
	"PRAGMA application_id = 1651472505",
	"PRAGMA user_version = 1",
};
#endif
