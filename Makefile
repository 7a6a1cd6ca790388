# sprite_lockdown: built with PGXS.
#
#   make, make install, make installcheck    as with every extension
#   make demo, make test                     do their own set-up on Debian 12
#   make test TESTS='unit pgtap/03_*'        some of the tests
#   make soak SECONDS=600                    random histories for as long as asked
#   make fuzz SECONDS=600                    the decoders, under the sanitizers
#   make model                               SPIN searches the model of the protocol
#   make lint                                clang-tidy, shellcheck

EXTENSION = sprite_lockdown
MODULE_big = sprite_lockdown
PGFILEDESC = "sprite_lockdown - proven egress policies for sandbox VMs"
DATA = $(wildcard sql/sprite_lockdown--*.sql)

SOURCES = \
	src/sprite_lockdown.c \
	src/domain.c src/policy.c src/proof.c src/argv.c src/policy_sql.c \
	src/endpoint.c src/http.c src/http_url.c \
	src/reply.c src/api_json.c src/api_result.c src/sprites_api.c \
	src/owned_table.c src/sessions.c src/journal.c src/name_lock.c src/lockdown.c \
	src/exec_script.c src/workspace.c \
	src/arguments.c src/entry.c src/handback.c src/workspace_sql.c
OBJS = $(SOURCES:.c=.o)
SHELL_SCRIPTS = $(wildcard .ci/run test/setup test/run test/*/run test/*/*.sh docs/*/run bench/run)

# These need no platform; the rest of the tests is run by "make test".
REGRESS = pure encoding arguments options privileges settings
REGRESS_OPTS = --encoding=UTF8 --no-locale

PG_CONFIG ?= pg_config
PKG_CONFIG ?= pkg-config

# Goals that install what the others need, or need nothing.
ifeq ($(filter demo test soak model fuzz,$(MAKECMDGOALS)),)

ifeq ($(shell command -v $(PG_CONFIG) 2>/dev/null),)
$(error $(PG_CONFIG) was not found. Install the server's development files \
	(Debian: postgresql-server-dev-15), or name it: make PG_CONFIG=/path/to/pg_config)
endif
ifeq ($(shell command -v $(PKG_CONFIG) 2>/dev/null),)
$(error $(PKG_CONFIG) was not found. Install it (Debian: pkg-config))
endif
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq ($(wildcard $(PGXS)),)
$(error $(PG_CONFIG) knows of no PGXS: the development files of the server are \
	missing. Install them (Debian: postgresql-server-dev-15))
endif
MISSING = $(strip \
	$(shell $(PKG_CONFIG) --exists 'libcurl >= 7.74' || echo 'libcurl 7.74 (Debian: libcurl4-openssl-dev);') \
	$(shell $(PKG_CONFIG) --exists 'json-c >= 0.15' || echo 'json-c 0.15 (Debian: libjson-c-dev);') \
	$(shell $(PKG_CONFIG) --exists 'libcrypto >= 1.1.1' || echo 'libcrypto 1.1.1 (Debian: libssl-dev);'))
ifneq ($(MISSING),)
$(error Missing development files: $(MISSING) install them and run make again)
endif

PG_CPPFLAGS = -Isrc $(shell $(PKG_CONFIG) --cflags libcurl json-c libcrypto)
SHLIB_LINK = $(shell $(PKG_CONFIG) --libs libcurl json-c libcrypto)

# As system headers PostgreSQL's own do not warn: configured for gcc, they have
# attributes that clang does not know.  WERROR=1 is for our own tests: a newer
# compiler's new warning must not keep anybody from building.
PG_CPPFLAGS += -isystem $(shell $(PG_CONFIG) --includedir-server)
PG_CFLAGS = -std=gnu11 -Wall -Wextra
ifneq ($(findstring clang,$(notdir $(CC))),)
# what gcc's configuration of PostgreSQL passes on: its flags and format archetype
PG_CFLAGS += -Wno-ignored-optimization-argument -Wno-unknown-warning-option \
	-Wno-ignored-attributes
endif
ifeq ($(WERROR),1)
PG_CFLAGS += -Werror
endif

# Bitcode serves the inlining of small functions into queries: there are none.
override with_llvm = no

EXTRA_CLEAN = src/*.o src/*.bc test/unit/build test/*/__pycache__

include $(PGXS)

# PGXS does not follow includes; every object depends on every header.
$(OBJS): $(wildcard src/*.h)

.PHONY: lint
lint:
	printf '%s\n' $(SOURCES) | xargs -P 2 -I {} \
		clang-tidy --quiet --warnings-as-errors='*' {} -- \
		$(filter-out -W% -f%,$(CPPFLAGS) $(CFLAGS)) -Wno-ignored-attributes
	shellcheck -x -S warning $(SHELL_SCRIPTS)

else

.PHONY: demo test soak model fuzz
demo:
	@./test/demo/run
test:
	@./test/run $(TESTS)
soak:
	@SOAK=$(or $(SECONDS),600) ./test/run checker
fuzz:
	@./test/setup
	@./test/fuzz/run $(or $(SECONDS),600)
model:
	@./test/setup
	@./docs/model/run
clean:
	@$(MAKE) --no-print-directory clean MAKECMDGOALS=

endif
