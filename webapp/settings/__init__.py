"""Django's settings, read from the environment (README lists every variable); nothing here has an insecure default.

Variables: DATABASE_URL, REDIS_URL, SPADEWORK_SECRET_KEY_FILE or SPADEWORK_SECRET_KEY, SPADEWORK_PUBLIC_URL, SPADEWORK_EXTRA_ORIGINS,
SPADEWORK_HTTPS, SPADEWORK_TRUSTED_PROXIES, SPADEWORK_IMPORT_ROOT, SPADEWORK_DEBUG, SPADEWORK_HOME, SPADEWORK_STATIC_ROOT,
SPADEWORK_STATIC_MANIFEST, SPADEWORK_DB_POOL, SPADEWORK_LOG_LEVEL, SPADEWORK_RESTORE_DAYS, SPADEWORK_API_RATE, SPADEWORK_UPLOAD_MB,
SPADEWORK_CORPORA_ROOT, SPADEWORK_CORPUS_CHECK_S, SPADEWORK_WEBHOOK_PRIVATE.
"""

from __future__ import annotations

from pathlib import Path

from whitenoise.compress import Compressor

from webapp.core.features import installed_features
from webapp.settings.env import (
    BadSetting,
    envbool,
    envchoice,
    envint,
    envlist,
    envpath,
    envsecret,
    envstr,
)
from webapp.settings.guards import refuse_celery_environment
from webapp.settings.import_root import read_import_root
from webapp.settings.logs import logging_settings
from webapp.settings.origins import read_origins
from webapp.settings.policy import content_security_policy
from webapp.settings.proxies import read_trusted_proxies
from webapp.settings.services import DATABASE_EXAMPLE, REDIS_EXAMPLE, database_settings, redis_address

BASE_DIR = Path(__file__).resolve().parent.parent.parent
SPADEWORK_HOME = envpath("SPADEWORK_HOME", default=Path.home() / ".local" / "share" / "spadework")

# Where people reach us ---------------------------------------------------------------------------------------------

DEBUG = envbool("SPADEWORK_DEBUG", default=False)
_origins = read_origins(
    "SPADEWORK_PUBLIC_URL",
    envstr("SPADEWORK_PUBLIC_URL", expected="", default="http://127.0.0.1:8000"),
    extra_name="SPADEWORK_EXTRA_ORIGINS",
    extra=envlist("SPADEWORK_EXTRA_ORIGINS"),
)
SPADEWORK_PUBLIC_URL = _origins.public
SPADEWORK_SOCKET_ORIGINS = _origins.http_origins
ALLOWED_HOSTS = _origins.hosts
CSRF_TRUSTED_ORIGINS = _origins.http_origins

SPADEWORK_HTTPS = envbool("SPADEWORK_HTTPS", default=_origins.https)
if _origins.https != SPADEWORK_HTTPS:
    raise BadSetting(
        "SPADEWORK_HTTPS",
        f"is {'yes' if SPADEWORK_HTTPS else 'no'} but SPADEWORK_PUBLIC_URL is {_origins.public}",
        "the same answer as the URL's scheme, or leave it out",
    )

# Secrets and the transport -----------------------------------------------------------------------------------------

SECRET_KEY = envsecret("SPADEWORK_SECRET_KEY", file_name="SPADEWORK_SECRET_KEY_FILE")
SECURE_SSL_REDIRECT = SPADEWORK_HTTPS
# uvicorn speaks plain HTTP; TLS ends at a proxy. What its headers say (address, scheme) uvicorn writes into the request, and only
# for these addresses: SECURE_PROXY_SSL_HEADER stays off, because it would believe anybody's header.
SPADEWORK_TRUSTED_PROXIES = read_trusted_proxies("SPADEWORK_TRUSTED_PROXIES", https=SPADEWORK_HTTPS)
SESSION_COOKIE_SECURE = SPADEWORK_HTTPS
CSRF_COOKIE_SECURE = SPADEWORK_HTTPS
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if SPADEWORK_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SPADEWORK_HTTPS
SECURE_HSTS_PRELOAD = SPADEWORK_HTTPS
SECURE_CONTENT_TYPE_NOSNIFF = True
# Not "no-referrer": Django's CSRF check of HTTPS forms wants a referrer from our own pages.
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Cookies know no ports: our own names keep other Django tools on the same host from overwriting ours.
SESSION_COOKIE_NAME = "spadework_session"
CSRF_COOKIE_NAME = "spadework_csrf"
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "webapp.core.views.csrf_failure"
SESSION_COOKIE_AGE = 14 * 24 * 3600
CONTENT_SECURITY_POLICY = content_security_policy(socket_sources=_origins.socket_sources)

# Applications ------------------------------------------------------------------------------------------------------

SPADEWORK_FEATURES = installed_features(BASE_DIR / "webapp")
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "django_htmx",
    "django_filters",
    "rest_framework",
    "drf_spectacular",
    "axes",
    "csp",
    "webapp.core",
    "webapp.accounts",
    *(f"webapp.{name}" for name in SPADEWORK_FEATURES),
]
MIDDLEWARE = [
    "webapp.core.streaming.StreamInPieces",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    # Checks the Host header of every request, also for views that never ask for it (DNS rebinding).
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "webapp.core.middleware.ErrorPages",
    "webapp.core.middleware.NoNul",
    "webapp.core.middleware.HtmxLoginRedirect",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "webapp.core.middleware.NoStore",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "webapp.core.context_processors.shell",
            ],
            "builtins": [
                "django.templatetags.static",
                "webapp.core.templatetags.ui",
                "webapp.core.templatetags.numbers",
                "webapp.core.templatetags.text",
                "webapp.core.templatetags.panels",
                "webapp.accounts.templatetags.roles",
            ],
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Postgres and Valkey/Redis -----------------------------------------------------------------------------------------

DATABASES = {
    "default": database_settings(
        "DATABASE_URL",
        envstr("DATABASE_URL", expected=f"a connection string like {DATABASE_EXAMPLE}"),
        pool_size=envint("SPADEWORK_DB_POOL", default=0, minimum=0, maximum=64),
    )
}
_redis = redis_address("REDIS_URL", envstr("REDIS_URL", expected=f"a URL like {REDIS_EXAMPLE}"))
SPADEWORK_REDIS_URL = _redis.client_url
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {
            # redis-py 8 gives up on any read after 5 s unless told otherwise, which ends every quiet socket.
            "hosts": [{"address": _redis.client_url, "socket_timeout": None}],
            "prefix": "spadework",
        },
    }
}
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    # Counts of API requests, shared by all web processes.
    "throttle": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": _redis.client_url,
        "KEY_PREFIX": "spadework-throttle",
    },
}

# Celery ------------------------------------------------------------------------------------------------------------

refuse_celery_environment()
CELERY_BROKER_URL = _redis.celery_url
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_QUEUES = {name: {"exchange": name, "routing_key": name} for name in ("default", "gpu", "try")}
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Tasks only launch work whose truth is a leased row in Postgres. Acknowledged early, a killed task is lost and the lease
# sweeper starts it again; acknowledged late, one that outlives the time-out below would run twice.
CELERY_TASK_ACKS_LATE = False
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 7 * 24 * 3600}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
# What a lost message or a dead worker left behind is found by these. A feature whose folder is gone has none.
CELERY_BEAT_SCHEDULE = {
    f"{name}-sweep": {"task": f"webapp.{name}.tasks.sweep", "schedule": 10.0, "options": {"expires": 10.0}}
    for name in ("environments", "pools", "corpora", "keeping", "alerts", "trying")
    if name in SPADEWORK_FEATURES
}
if "keeping" in SPADEWORK_FEATURES:
    _measure = {"task": "webapp.keeping.tasks.measure_disk", "schedule": 300.0, "options": {"expires": 300.0}}
    CELERY_BEAT_SCHEDULE["keeping-measure"] = _measure

# People ------------------------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "accounts:login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "accounts:login"
# Per name and address together: a typo of one person behind a tunnel must not lock everybody else out.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25  # hours
AXES_RESET_ON_SUCCESS = True
AXES_HTTP_RESPONSE_CODE = 429
AXES_LOCKOUT_CALLABLE = "webapp.accounts.views.locked_out"
AXES_VERBOSE = False
# The address uvicorn saw (it applies X-Forwarded-For only from proxies it was told to trust), never a raw header.
AXES_IPWARE_META_PRECEDENCE_ORDER = ["REMOTE_ADDR"]
AXES_ENABLE_ACCESS_FAILURE_LOG = False
AXES_DISABLE_ACCESS_LOG = True  # the audit log says who signed in
SPADEWORK_LINK_HOURS = 24
# Where run directories made elsewhere are put to be imported in the browser; nothing outside it can be chosen.
SPADEWORK_IMPORT_ROOT = read_import_root("SPADEWORK_IMPORT_ROOT", home=SPADEWORK_HOME)
# How long a deleted run can be restored; then its rows and files are removed for good.
SPADEWORK_RESTORE_DAYS = envint("SPADEWORK_RESTORE_DAYS", default=30, minimum=1, maximum=3650)

# Corpora: how much one upload may hold, the folder of this machine people may choose from ("" for none), and how long a check may take.
SPADEWORK_UPLOAD_BYTES = 1024**2 * envint("SPADEWORK_UPLOAD_MB", default=1024, minimum=1, maximum=1_000_000)
SPADEWORK_CORPORA_ROOT = str(envpath("SPADEWORK_CORPORA_ROOT", default=Path())).removeprefix(".")
SPADEWORK_CORPUS_CHECK_S = envint("SPADEWORK_CORPUS_CHECK_S", default=900, minimum=1, maximum=86_400)

# Trying a checkpoint: where its weights go, how much memory it may take (on the CPU), and when a session ends by itself.
SPADEWORK_TRY_DEVICE = envchoice("SPADEWORK_TRY_DEVICE", default="cpu", choices=("cpu", "cuda", "auto"))
SPADEWORK_TRY_MEMORY_BYTES = 1024**2 * envint(
    "SPADEWORK_TRY_MEMORY_MB", default=16_384, minimum=1024, maximum=10_000_000
)
SPADEWORK_TRY_IDLE_S = envint("SPADEWORK_TRY_IDLE_S", default=900, minimum=10, maximum=86_400)
SPADEWORK_TRY_LIMIT_S = envint("SPADEWORK_TRY_LIMIT_S", default=7200, minimum=60, maximum=86_400)
SPADEWORK_TRY_ANSWER_S = envint("SPADEWORK_TRY_ANSWER_S", default=600, minimum=10, maximum=86_400)

# Whether webhooks may lead to private networks and to this machine.
SPADEWORK_WEBHOOK_PRIVATE = envbool("SPADEWORK_WEBHOOK_PRIVATE", default=False)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "webapp.accounts.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["webapp.accounts.throttles.RequestThrottle"],
    "DEFAULT_THROTTLE_RATES": {
        "requests": f"{envint('SPADEWORK_API_RATE', default=600, minimum=1, maximum=1_000_000)}/min",
        "bad-tokens": "20/min",
    },
    "DEFAULT_PERMISSION_CLASSES": ["webapp.accounts.permissions.IsViewer"],
    "EXCEPTION_HANDLER": "webapp.api.errors.handle",
    "DEFAULT_SCHEMA_CLASS": "webapp.api.schema.RoleSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "UNICODE_JSON": True,
    "STRICT_JSON": True,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Spadework",
    "VERSION": "1",
    "DESCRIPTION": "Reads and controls runs, environments, episodes, reviews and pools, by the same rules as the pages.",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_PERMISSIONS": ["webapp.accounts.permissions.IsViewer"],
    "SERVE_INCLUDE_SCHEMA": False,
    "ENUM_NAME_OVERRIDES": {
        f"{model}State": f"webapp.{name}.models.{row}.State"
        for name, model, row in (
            ("environments", "Environment", "Environment"),
            ("pools", "Pool", "Pool"),
            ("corpora", "Corpus", "Corpus"),
            ("keeping", "Import", "ImportJob"),
        )
        if name in SPADEWORK_FEATURES
    },
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "webapp.api.schema.add_problems"],
}

# Words, time, files, logs ------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en-us"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Not the applications' own folders: a hundred files of REST and htmx that no page uses, six seconds of compression.
STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
STATIC_ROOT = envpath("SPADEWORK_STATIC_ROOT", default=SPADEWORK_HOME / "static")
# Names with a content hash, from the manifest collectstatic writes. Off (tests, development) files are served from static/.
_static_manifest = envbool("SPADEWORK_STATIC_MANIFEST", default=not DEBUG)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if _static_manifest
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not _static_manifest
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_SKIP_COMPRESS_EXTENSIONS = ("map", *Compressor.SKIP_COMPRESS_EXTENSIONS)  # only developer tools ask for them
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FILES = 1000  # far above what corpora take at once, which says so in its own words
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
LOGGING = logging_settings(
    level=envchoice("SPADEWORK_LOG_LEVEL", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
)
