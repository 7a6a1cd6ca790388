#!/usr/bin/env python3
"""Holds every worked value of policies.json against the extension, as TAP.

    run.py PSQL       PGHOST and PGPORT say where the cluster is

All of them in a UTF8 database; in LATIN1 and SQL_ASCII ones those of ASCII, and
in LATIN1 the others that it can hold: they must hash as their UTF-8.
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKS = """
SELECT n, what, ok FROM (
  SELECT n, 'hash_policy' AS what, s.hash_policy(v->'policy') = v->>'hash' AS ok
    FROM hashes
  UNION ALL
  SELECT n, 'sanitize_allowlist', to_jsonb(s.sanitize_allowlist(list)) = v->'sanitized' FROM built
  UNION ALL
  SELECT n, 'egress_policy', s.egress_policy(v->>'mode', list) = v->'policy' FROM built
  UNION ALL
  SELECT n, 'hash_egress_policy', s.hash_egress_policy(v->>'mode', list) = v->>'hash' FROM built
  UNION ALL
  SELECT n, 'policy_problems', NOT EXISTS (SELECT FROM s.policy_problems(v->'policy'))
    FROM built) AS c
ORDER BY what, n
"""


def quoted(value):
    return "'" + value.replace("'", "''") + "'"


def script(vectors, kept):
    lines = ["SET client_encoding = 'UTF8';", "SET standard_conforming_strings = on;",
             "CREATE SCHEMA s; CREATE EXTENSION sprite_lockdown SCHEMA s;",
             "CREATE TABLE hashes (n int, v jsonb); CREATE TABLE built (n int, v jsonb, list text[]);"]
    for number, vector in enumerate(vectors["hash_policy"]):
        if kept(vector):
            lines.append("INSERT INTO hashes VALUES (%d, %s);"
                         % (number, quoted(json.dumps(vector, ensure_ascii=False))))
    for number, vector in enumerate(vectors["egress_policy"]):
        if kept(vector):
            entries = ", ".join(map(quoted, vector["allowlist"]))
            lines.append("INSERT INTO built VALUES (%d, %s, ARRAY[%s]::text[]);" % (
                number, quoted(json.dumps(vector, ensure_ascii=False)), entries))
    return "\n".join(lines + [CHECKS + ";"])


def encodable(encoding):
    def kept(vector):
        try:
            json.dumps(vector, ensure_ascii=False).encode(encoding)
            return True
        except UnicodeEncodeError:
            return False
    return kept


def psql(program, database, text):
    done = subprocess.run([program, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database],
                          input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        print("Bail out! " + output.replace("\n", " "))
        sys.exit(1)
    return output


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "psql"
    with open(os.path.join(HERE, "policies.json"), encoding="utf-8") as file:
        vectors = json.load(file)
    count = failed = 0
    for encoding, codec in (("UTF8", "utf-8"), ("LATIN1", "latin-1"), ("SQL_ASCII", "ascii")):
        database = "vectors_" + encoding.lower()
        psql(program, "postgres", "DROP DATABASE IF EXISTS %s;" % database)
        psql(program, "postgres", "CREATE DATABASE %s TEMPLATE template0 ENCODING '%s'"
             " LC_COLLATE 'C' LC_CTYPE 'C';" % (database, encoding))
        for line in psql(program, database, script(vectors, encodable(codec))).splitlines():
            number, what, good = line.split("|")
            count += 1
            failed += good != "t"
            print("%sok %d - %s %s, vector %s" % ("" if good == "t" else "not ", count, encoding,
                                                 what, number))
        psql(program, "postgres", "DROP DATABASE %s;" % database)
    print("1..%d" % count)
    sys.exit(1 if failed or count == 0 else 0)


if __name__ == "__main__":
    main()
